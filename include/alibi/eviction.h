// What is known of keys that a cache has evicted.
#pragma once

#include <cstdint>

namespace alibi {

/// What the keys that a context has evicted could have contributed, at most (docs/attention.md).
struct EvictionCertificate {
  double worst = 0;      ///< share of a softmax row's weight, over all tokens, layers and heads; 1: no bound is known
  int64_t position = 0;  ///< of the token where that was,
  int layer = 0, head = 0;
  int64_t keys = 0;  ///< evicted, in all layers and heads; as many values
};

}  // namespace alibi
