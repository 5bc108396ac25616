// The three kinds of bias (none, linear, bucketed) as functions of head and distance, in float32 and in the relative
// form: distance = position of query - position of key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "alibi/attention.h"

namespace alibi::kernels {

/// Distances beyond every position, but small enough to be added to one.
inline constexpr int64_t unbounded = int64_t{1} << 42;

/// The bias of one head of one batch entry.
struct HeadBias {
  float slope_before = 0;        ///< of keys at distance > 0
  float slope_after = 0;         ///< of keys at distance < 0
  const float* table = nullptr;  ///< T5: bias of distance d at table[d], |d| <= table_reach; beyond, the ends hold
  int64_t table_reach = 0;
  int64_t least = -unbounded;  ///< the distances that are seen: causality, window and closed directions
  int64_t most = unbounded;

  bool sees(int64_t distance) const { return least <= distance && distance <= most; }
  /// Of a key that is seen.
  float at(int64_t distance) const {
    if (table != nullptr) return table[std::clamp(distance, -table_reach, table_reach)];
    return -slope(distance) * static_cast<float>(distance < 0 ? -distance : distance);
  }
  /// The slope on the distance's side; 0 at distance 0, whatever is closed.
  float slope(int64_t distance) const { return distance > 0 ? slope_before : distance < 0 ? slope_after : 0; }
};

/// The bucket of every distance from -max_distance to max_distance; beyond, the ends hold.
std::vector<int32_t> bucket_by_distance(const BucketedBias& buckets, bool causal);

/// The values of a T5 table by distance, [heads][2 * max_distance + 1].
std::vector<float> bias_by_distance(const BucketedBias& buckets, const std::vector<int32_t>& bucket_by_distance);

}  // namespace alibi::kernels
