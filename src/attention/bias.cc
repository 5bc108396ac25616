#include "attention/bias.h"

#include <bit>
#include <cmath>

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

int relative_position_bucket(int64_t distance, bool causal, int num_buckets, int max_distance) {
  // Half of the buckets of a side hold one distance each, the other half grow logarithmically up to max_distance.
  int first = 0;
  if (!causal) {
    num_buckets /= 2;
    if (distance < 0) first = num_buckets;
    distance = std::abs(distance);
  }
  distance = std::max<int64_t>(distance, 0);
  const int exact = num_buckets / 2;
  if (distance < exact) return first + static_cast<int>(distance);
  if (distance >= max_distance) return first + num_buckets - 1;
  const double octaves =
      std::log(static_cast<double>(distance) / exact) / std::log(static_cast<double>(max_distance) / exact);
  constexpr double rounding = 1e-9;  // distances that lie on a bucket's edge belong to the upper bucket
  const int step = static_cast<int>(octaves * (num_buckets - exact) + rounding);
  return first + std::min(exact + step, num_buckets - 1);
}

namespace kernels {

std::vector<int32_t> bucket_by_distance(const BucketedBias& buckets, bool causal) {
  const int num_buckets = static_cast<int>(buckets.table.size(0));
  const int64_t reach = buckets.max_distance;
  std::vector<int32_t> result;
  result.reserve(static_cast<size_t>(2 * reach + 1));
  for (int64_t distance = -reach; distance <= reach; ++distance) {
    result.push_back(relative_position_bucket(distance, causal, num_buckets, buckets.max_distance));
  }
  return result;
}

std::vector<float> bias_by_distance(const BucketedBias& buckets, const std::vector<int32_t>& bucket_by_distance) {
  const auto heads = static_cast<size_t>(buckets.table.size(1));
  const std::vector<float> table = buckets.table.to_floats();
  std::vector<float> result;
  result.reserve(heads * bucket_by_distance.size());
  for (size_t head = 0; head < heads; ++head) {
    for (const int32_t bucket : bucket_by_distance) {
      result.push_back(table[static_cast<size_t>(bucket) * heads + head]);
    }
  }
  return result;
}

}  // namespace kernels
}  // namespace alibi
