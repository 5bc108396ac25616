#include "attention/bias/linear.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace alibi::kernels {
namespace {

constexpr float log2e = std::numbers::log2e_v<float>;

/// 0 for a closed direction.
float if_open(float slope) { return std::isinf(slope) ? 0 : slope; }

}  // namespace

double LinearBias::precise_at(int64_t distance) const {
  return -static_cast<double>(slope(distance)) * static_cast<double>(std::abs(distance));
}

float LinearBias::at(int64_t distance) const { return -slope(distance) * static_cast<float>(std::abs(distance)); }

void LinearBias::tile(int64_t first, int64_t origin, int64_t count, float factor, float* values) const {
  const float inverse = 1 / factor;
  const auto start = static_cast<int32_t>(first - origin), all = static_cast<int32_t>(count);
  const auto line = [&](int32_t begin, int32_t end, float rise) {
    for (int32_t i = begin; i < end; ++i) values[i] = rise * static_cast<float>(start + i) * inverse;
  };
  const float before = -before_ * log2e, after = after_ * log2e;
  if (origin != 0) return line(0, all, origin > 0 ? -if_open(before_) * log2e : if_open(after_) * log2e);
  const int32_t zero = std::clamp(-start, 0, all);
  line(0, zero, after);
  line(zero, all, before);
  // The slope of a closed direction is infinite. Multiplied by a distance of 0 it would be NaN.
  if (zero < all && start + zero == 0) values[zero] = 0;
}

bool LinearBias::is_level(int64_t first, int64_t last) const {
  return (first >= 0 || if_open(after_) == 0) && (last <= 0 || if_open(before_) == 0);
}

float LinearBias::magnitude() const { return std::max(if_open(before_), if_open(after_)); }

double LinearBias::beyond(Side side, int64_t distance) const {
  return -static_cast<double>(slope(side)) * static_cast<double>(distance);
}

void LinearBias::beyond(Side side, int64_t first, int step, int64_t count, float* values) const {
  const float slope2 = -slope(side) * log2e;
  const auto start = static_cast<int32_t>(first);
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) values[i] = slope2 * static_cast<float>(start + i * step);
}

double LinearBias::fall(Side side, int64_t keys) const {
  return static_cast<double>(if_open(slope(side))) * static_cast<double>(keys);
}

double LinearBias::horizon(Side side, double log_weight, int64_t) const {
  // exp(-slope D) / (1 - exp(-slope)) = exp(log_weight)
  constexpr double flattest = 1e-9;
  const double m = std::max(static_cast<double>(slope(side)), flattest);
  return (-std::log(-std::expm1(-m)) - log_weight) / m;
}

void LinearBias::add_gradient(int64_t first, int64_t nearest, std::span<const double> dscores, double* sums) const {
  int64_t distance = first;
  for (const double dscore : dscores) {
    if (distance > 0 || symmetric_) *sums -= dscore * static_cast<double>(std::abs(distance) - nearest);
    ++distance;
  }
}

}  // namespace alibi::kernels
