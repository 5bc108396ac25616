// The skip rule: when far keys provably do not matter, and how that is known before they are read. Derivation and
// error statement: docs/attention.md.
//
// Once what the remaining keys may weigh at most (skip_weights.h) is at most tolerance times the sum of the weights so
// far, for every row of a query block, they are not visited. Here is when the rule is asked, what it may spend, and the
// norms of keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/blocks.h"

namespace alibi::kernels {

/// Whether the rule is asked at all: the caller allows it, and some head has a linear bias.
bool skip_rule_applies(const Problem& problem);

/// Share of the tolerance that each direction may use up, less what covers every rounding of the rule that does not
/// grow with the scores: of sums of weights, of logarithms of counts, of 2^x, of the comparison itself.
inline float skip_budget(const Problem& problem) {
  constexpr float left_by_rounding = 1 - 0x1p-9f;
  return (problem.causal ? problem.tolerance : problem.tolerance / 2) * left_by_rounding;
}

/// What keys at different distances weigh in units of the nearest: the sum of exp(-slope i) over i in [0, keys).
inline double weight_of_keys(double slope, int64_t keys) {
  const auto count = static_cast<double>(keys);
  return slope > 0 ? std::min(count, std::expm1(-slope * count) / std::expm1(-slope)) : count;
}

/// Upper bounds on the norms of the keys of each key/value head: over the blocks before each block, and from it on.
class KeyNorms {
 public:
  KeyNorms(const Problem& problem, int64_t block_rows);
  const BlockIndex& blocks() const { return blocks_; }

  /// The bound for one block; different blocks may be set at the same time.
  void set(size_t sequence, int64_t kv_head, int64_t block, float norm);
  /// Makes the bounds below from those of all blocks.
  void accumulate();

  /// [blocks + 1] of a head.
  const float* before(size_t sequence, int64_t kv_head) const { return &before_[at(sequence, kv_head, 0)]; }
  const float* from(size_t sequence, int64_t kv_head) const { return &from_[at(sequence, kv_head, 0)]; }

 private:
  /// Each head has one entry more than it has blocks.
  size_t at(size_t sequence, int64_t kv_head, int64_t block) const {
    const int64_t heads_before = static_cast<int64_t>(sequence) * blocks_.heads() + kv_head;
    return static_cast<size_t>(blocks_.at(sequence, kv_head, block) + heads_before);
  }

  BlockIndex blocks_;
  std::vector<float> before_, from_;
};

}  // namespace alibi::kernels
