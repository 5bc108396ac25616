// Keys and values of prompts that were read, for later prompts that begin with the same tokens.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "alibi/context.h"

namespace alibi::generation {

/// Contexts and the tokens that they have read, each a whole number of chunks. The least recently used ones leave when
/// they need more memory than the limit.
class PrefixCache {
 public:
  /// `evicts`: contexts evict keys, so what they hold depends on all tokens that they have read. They are then used
  /// only where they stand.
  PrefixCache(int64_t chunk, int64_t max_bytes, bool evicts) : chunk_(chunk), max_bytes_(max_bytes), evicts_(evicts) {}

  bool keeps_any() const { return max_bytes_ > 0; }
  /// Number of tokens of a prompt after which its context can be kept; 0: never.
  int64_t kept_tokens(int64_t prompt) const { return keeps_any() ? prompt / chunk_ * chunk_ : 0; }
  /// Number of whole chunks' tokens that two texts have in common.
  int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) const;

  /// Keeps a fork of a context that has read these tokens.
  void keep(std::span<const int32_t> ids, const Context& context);
  /// A context that has read the largest number of whole chunks of `ids`, and not its last token.
  std::optional<Context> find(std::span<const int32_t> ids);
  int64_t bytes() const;

 private:
  struct Entry {
    std::vector<int32_t> ids;
    Context context;
  };
  int64_t chunk_, max_bytes_;
  bool evicts_;
  std::list<Entry> entries_;  // the most recently used one first
};

}  // namespace alibi::generation
