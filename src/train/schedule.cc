#include <algorithm>
#include <cmath>
#include <numbers>

#include "alibi/train.h"

namespace alibi {
namespace {

/// Half a cosine: 1 at 0, 0 at 1 and after.
double falling_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, progress))); }

/// 0 to 1 on the way from `begin` to `end`.
double progress_of(int64_t step, int64_t begin, int64_t end) {
  return std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(std::max<int64_t>(1, end - begin)));
}

}  // namespace

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) {
    const auto updates = static_cast<double>(warmup_steps);
    if (kind == ScheduleKind::fairseq) return warmup_from + static_cast<double>(step) * (peak - warmup_from) / updates;
    return peak * static_cast<double>(step + 1) / updates;
  }
  switch (kind) {
    case ScheduleKind::cosine:
      return peak * (final_fraction + (1 - final_fraction) * falling_cosine(progress_of(step, warmup_steps, steps)));
    case ScheduleKind::linear:
      return peak * (1 - (1 - final_fraction) * progress_of(step, warmup_steps, steps));
    case ScheduleKind::constant:
      return peak;
    case ScheduleKind::fairseq: {
      const int64_t end = period > 0 ? warmup_steps + period : steps;
      return floor + (peak - floor) * falling_cosine(progress_of(step, warmup_steps, end));
    }
  }
  return peak;
}

}  // namespace alibi
