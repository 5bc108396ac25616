#include "attention/skip/penalties.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace alibi::kernels {

PenaltyStep penalty_step(double penalty) {
  constexpr double fine = 128;       // penalties below it have steps of 1/4
  constexpr double per_octave = 32;  // steps above it
  constexpr int fine_steps = 512;
  if (penalty < fine) return static_cast<PenaltyStep>(4 * penalty);
  const double step = fine_steps + per_octave * std::log2(penalty / fine);
  return static_cast<PenaltyStep>(std::min(step, static_cast<double>(penalty_steps - 1)));
}

std::vector<PenaltyStep> steps_of(const CoordinateBias& bias, const Box* queries, std::vector<double>* penalties) {
  std::vector<PenaltyStep> steps(static_cast<size_t>(bias.points->keys.size()));
  if (penalties != nullptr) penalties->resize(steps.size());
  for (size_t block = 0; block < steps.size(); ++block) {
    const double penalty = -bias.beyond(queries, static_cast<int64_t>(block)) * std::numbers::log2e;
    steps[block] = penalty_step(penalty);
    if (penalties != nullptr) (*penalties)[block] = penalty;
  }
  return steps;
}

std::vector<int32_t> near_to_far(const std::vector<PenaltyStep>& steps) {
  std::vector<int32_t> next(penalty_steps + 1, 0), order(steps.size());
  for (const PenaltyStep step : steps) ++next[step + size_t{1}];
  for (size_t step = 0; step < penalty_steps; ++step) next[step + 1] += next[step];
  for (size_t block = 0; block < steps.size(); ++block) {
    order[static_cast<size_t>(next[steps[block]]++)] = static_cast<int32_t>(block);
  }
  return order;
}

void RemainingWeights::measure(const WeightBounds::Head& keys, const Levels& at, const std::vector<PenaltyStep>& steps,
                               const std::vector<double>& penalties) {
  const std::array<size_t, 2> levels = {static_cast<size_t>(at.low), static_cast<size_t>(at.high)};
  const auto log = [&](size_t block, size_t e) { return static_cast<double>(keys.before[block + 1][levels[e]]); };
  top_.fill(-HUGE_VAL);
  // `!(x <= top)` keeps NaN, so that nothing is skipped.
  for (size_t block = 0; block < steps.size(); ++block) {
    for (size_t e = 0; e < 2; ++e) {
      if (!(log(block, e) <= top_[e])) top_[e] = log(block, e);
    }
  }
  beyond_ = at.beyond == 0 ? 0 : static_cast<double>(at.beyond) * static_cast<double>(keys.radius_before[steps.size()]);
  sums_.assign(penalty_steps, {0, 0});
  for (size_t block = 0; block < steps.size(); ++block) {
    for (size_t e = 0; e < 2; ++e) sums_[steps[block]][e] += std::exp2(log(block, e) - penalties[block] - top_[e]);
  }
  // Covers sums that are flushed to zero: no key block adds less.
  const double least = static_cast<double>(steps.size()) * std::numeric_limits<double>::min();
  std::array<double, 2> sum = {least, least};
  for (size_t step = penalty_steps; step-- > 0;) {
    for (size_t e = 0; e < 2; ++e) sums_[step][e] = sum[e] += sums_[step][e];
  }
}

Chord RemainingWeights::from(PenaltyStep step) const {
  const auto log = [&](size_t e) { return std::log2(sums_[step][e]) + top_[e] + 0x1p-30; };
  const float low = above(log(0));
  return {.low = low, .rise = above(log(1) + beyond_ - static_cast<double>(low))};
}

}  // namespace alibi::kernels
