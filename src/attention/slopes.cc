#include <bit>
#include <cmath>

#include "alibi/attention.h"
#include "core/check.h"

namespace alibi {
namespace {

/// The geometric sequence for a power of two: 2^(-bias_max * (i + 1) / n).
float slope_of(int i, int n, double bias_max) {
  return static_cast<float>(std::exp2(-bias_max * static_cast<double>(i + 1) / static_cast<double>(n)));
}

}  // namespace

std::vector<float> slopes(int heads, double bias_max) {
  check_usage(heads >= 1 && heads <= (1 << 20), "[slopes] {} heads, expected 1 to {}", heads, 1 << 20);
  check_usage(bias_max > 0 && std::isfinite(bias_max), "[slopes] bias_max is {}, expected positive and finite",
              bias_max);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> result;
  result.reserve(static_cast<size_t>(heads));
  for (int i = 0; i < power; ++i) result.push_back(slope_of(i, power, bias_max));
  // The rest come from between: the 1st, 3rd, 5th ... slope of twice as many heads.
  for (int i = 0; i < heads - power; ++i) result.push_back(slope_of(2 * i, 2 * power, bias_max));
  return result;
}

}  // namespace alibi
