// The skip rule: when far keys provably do not matter, and how that is known before they are read. Derivation and
// error statement: docs/attention.md.
//
// For a row with maximum M and sum l so far, slope m, and remaining keys at distances of at least D whose norms are at
// most N, the remaining keys' weights sum to at most
//
//     exp(scale |q| N - m D - M) * min(number of remaining keys, 1 / (1 - exp(-m)))
//
// and once that is at most tolerance * l for every row of a query block, they are not visited.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/blocks.h"

namespace alibi::kernels {

/// Upper bounds on the norms of keys, by key block: over all keys before it, and from it on.
class KeyNorms {
 public:
  /// Empty unless the problem asks for skipping and some head has a slope that allows it.
  explicit KeyNorms(const Problem& problem);
  bool empty() const { return before_.empty(); }
  int64_t sequences() const { return static_cast<int64_t>(base_.size()); }
  int64_t blocks(size_t sequence) const { return blocks_[sequence]; }

  /// The largest norm within one block; to be set for every block, then `accumulate` makes the bounds.
  float& block(size_t sequence, int64_t kv_head, int64_t block) { return within_[at(sequence, kv_head, block)]; }
  void accumulate(const Problem& problem);

  float before(size_t sequence, int64_t kv_head, int64_t block) const { return before_[at(sequence, kv_head, block)]; }
  float from(size_t sequence, int64_t kv_head, int64_t block) const { return from_[at(sequence, kv_head, block)]; }

 private:
  size_t at(size_t sequence, int64_t kv_head, int64_t block) const {
    return static_cast<size_t>(base_[sequence] + kv_head * (blocks_[sequence] + 1) + block);
  }

  std::vector<int64_t> base_, blocks_;
  std::vector<float> within_, before_, from_;
};

/// Whether a head may skip at all: its bias must be linear.
bool may_skip(const Problem& problem);

/// Share of the tolerance that each direction may use up.
inline float skip_budget(const Problem& problem) { return problem.causal ? problem.tolerance : problem.tolerance / 2; }

}  // namespace alibi::kernels
