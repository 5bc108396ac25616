// The skip rule where each pair has its own bias. Key blocks are visited from near to far, and the bound is that of all
// blocks from a step of the bias on. docs/explanation/positions.md has the derivation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attention/skip/weights.h"

namespace alibi::kernels {

/// The penalty of a block of keys, minus the largest bias in log2 units, in steps that are fine where weights are
/// decided. The skip rule decides for whole steps.
using PenaltyStep = uint16_t;
inline constexpr int penalty_steps = 1024;
PenaltyStep penalty_step(double penalty);

/// The step of each key block for queries in a box; null for a block with leading queries. `penalties`, unless null,
/// receives the penalties.
std::vector<PenaltyStep> steps_of(const CoordinateBias& bias, const Box* queries,
                                  std::vector<double>* penalties = nullptr);

/// The key blocks by rising step. Blocks of one step keep their order.
std::vector<int32_t> near_to_far(const std::vector<PenaltyStep>& steps);

/// Bounds of what remains from each step on, for one query block.
class RemainingWeights {
 public:
  /// Steps and penalties are those of steps_of().
  void measure(const WeightBounds::Head& keys, const Levels& at, const std::vector<PenaltyStep>& steps,
               const std::vector<double>& penalties);
  /// The logarithm of the weight of all key blocks from this step on.
  Chord from(PenaltyStep step) const;

 private:
  std::array<double, 2> top_ = {};
  double beyond_ = 0;
  std::vector<std::array<double, 2>> sums_;  // [penalty_steps]: relative to 2^top
};

}  // namespace alibi::kernels
