// Bound on the weight of keys that a cache has evicted.
#pragma once

#include <cstdint>

namespace alibi {

/// Upper bound of the contribution of all keys that a context has evicted (docs/explanation/skip-rule.md).
struct EvictionCertificate {
  double worst = 0;      ///< largest share of a softmax row's weight over all tokens, layers and heads; 1: no bound is
                         ///< known
  int64_t position = 0;  ///< position of the token with the largest share
  int layer = 0, head = 0;
  int64_t keys = 0;        ///< number of evicted keys in all layers and heads
  int64_t kept = 0;        ///< number of keys that all layers and heads hold
  double score_error = 0;  ///< with a q8_0 cache: largest bound of the change of an attention score; otherwise 0
};

}  // namespace alibi
