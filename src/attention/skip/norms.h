// The skip rule: far keys are not visited if their weight is provably negligible, which is known before they are read.
// The derivation and the error bound are in docs/explanation/skip-rule.md.
//
// The rule stops a query block when, for each of its rows, the bound of the weight of the remaining keys (rule.h) is at
// most the tolerance times the sum of the weights so far. This file defines when the rule applies and its budget, and
// computes the norms of keys and their centre.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/blocks.h"

namespace alibi::kernels {

/// Whether the rule applies: the caller allows it, and there are gates, or some head has a bias that falls.
bool skip_rule_applies(const Problem& problem);

/// The part of the tolerance that each direction may use. It is reduced to cover the rounding errors of the rule that
/// do not grow with the scores: those of sums of weights, logarithms of counts, 2^x and the comparison.
inline float skip_budget(const Problem& problem) {
  constexpr float left_by_rounding = 1 - 0x1p-9f;
  return (problem.causal ? problem.tolerance : problem.tolerance / 2) * left_by_rounding;
}

/// The weight of `keys` neighbouring keys relative to the nearest one, if the bias falls by `fall` from key to key: the
/// sum of exp(-fall i) over i in [0, keys).
inline double weight_of_keys(double fall, int64_t keys) {
  const auto count = static_cast<double>(keys);
  return fall > 0 ? std::min(count, std::expm1(-fall * count) / std::expm1(-fall)) : count;
}

/// Upper bounds of the norms of the keys of each key/value head: over all blocks before a block, and over all blocks
/// from it on.
class KeyNorms {
 public:
  KeyNorms(const Problem& problem, int64_t block_rows);
  const BlockIndex& blocks() const { return blocks_; }

  /// The bound for one block. Different blocks may be set at the same time.
  void set(size_t sequence, int64_t kv_head, int64_t block, float norm);
  /// The bound that was set, until accumulate().
  float of_block(size_t sequence, int64_t kv_head, int64_t block) const { return from_[at(sequence, kv_head, block)]; }
  /// Computes the cumulative bounds from those of the single blocks.
  void accumulate();

  /// [blocks + 1] values of a head.
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

/// Number of rows from which a centre is computed.
inline constexpr int64_t centre_rows = 64;

/// centre[size] = a robust mean of rows [count][size]; size is a multiple of 8. The bound of the skip rule holds for
/// any centre, and is smaller if the centre is subtracted from the keys. Rows longer than the median are scaled down to
/// it. Rows with infinity or NaN are left out. The mean is shrunk by the length that a mean of unrelated rows would
/// have, and is zero if it is not clearly longer than that.
void make_centre(const float* rows, int64_t count, int64_t size, float* centre);

/// The median of the norms of the rows, or 0 if there are no rows or the median is not finite.
float median_norm(const float* rows, int64_t count, int64_t size);

}  // namespace alibi::kernels
