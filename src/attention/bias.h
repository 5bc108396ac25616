// The bias of a score as a function of head and distance, where distance = position of query - position of key. There
// are two kinds: linear (slopes), and a table by distance. T5's buckets are such a table, in which distances share
// rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "alibi/attention.h"

namespace alibi::kernels {

/// Distances beyond every position, but small enough to be added to one.
inline constexpr int64_t unbounded = int64_t{1} << 42;

/// The bias of one head of one batch entry.
struct HeadBias {
  float slope_before = 0;        ///< of keys at distance > 0
  float slope_after = 0;         ///< of keys at distance < 0
  const float* table = nullptr;  ///< bias of distance d at table[d], |d| <= farthest; the ends hold for all beyond
  int64_t farthest = 0;
  int64_t least = -unbounded;  ///< the distances that are seen: causality, window and closed directions
  int64_t most = unbounded;

  bool sees(int64_t distance) const { return least <= distance && distance <= most; }
  /// Of a key that is seen.
  float at(int64_t distance) const {
    if (table != nullptr) return table[std::clamp(distance, -farthest, farthest)];
    return -slope(distance) * static_cast<float>(distance < 0 ? -distance : distance);
  }
  /// The same in float64.
  double precise_at(int64_t distance) const {
    if (table != nullptr) return static_cast<double>(at(distance));
    return -static_cast<double>(slope(distance)) * static_cast<double>(distance < 0 ? -distance : distance);
  }
  /// The slope on the distance's side; 0 at distance 0, whatever is closed.
  float slope(int64_t distance) const { return distance > 0 ? slope_before : distance < 0 ? slope_after : 0; }
};

/// The biases of all heads of a call, made from its options.
struct Biases {
  std::vector<float> slopes_before, slopes_after;  ///< [batch * heads], 0 where there is no linear bias; +infinity
                                                   ///< closes the direction
  bool slopes_per_batch = false;                   ///< dslopes is [batch * heads] rather than [heads]
  bool slopes_symmetric = true;                    ///< no slopes_after was given: dslopes sums both directions

  int64_t rows = 0;             ///< of the caller's table, [rows, heads]; 0: there is none
  int64_t farthest = 0;         ///< the table distinguishes distances from -farthest to farthest
  std::vector<int32_t> row_of;  ///< [2 * farthest + 1]: the caller's row of each distance
  std::vector<float> table;     ///< [heads][2 * farthest + 1]: the caller's values by distance
  std::vector<float> largest;   ///< [heads]: largest magnitude of the values; infinity if any is not finite

  /// The caller's row of a distance.
  int32_t row(int64_t distance) const {
    return row_of[static_cast<size_t>(std::clamp(distance, -farthest, farthest) + farthest)];
  }
};

/// Throws Error naming the option; `operation` is what messages begin with.
Biases make_biases(const char* operation, const AttentionOptions& options, int64_t batch, int64_t heads);

/// While one lives, calls of its thread share their biases where those are the same, as in the layers of a model. The
/// values of tables must not change meanwhile.
class ReuseBiases {
 public:
  ReuseBiases();
  ~ReuseBiases();
  ReuseBiases(const ReuseBiases&) = delete;
  ReuseBiases& operator=(const ReuseBiases&) = delete;

 private:
  friend std::shared_ptr<const Biases> biases_of(const char*, const AttentionOptions&, int64_t, int64_t);
  bool has(const AttentionOptions& options, int64_t batch, int64_t heads) const;

  ReuseBiases* outer_;
  AttentionOptions options_;  // of the biases; tables stay alive, so that none takes the place of another
  int64_t batch_ = 0, heads_ = 0;
  std::shared_ptr<const Biases> biases_;
};

/// Those of make_biases(), shared with other calls where a ReuseBiases lives.
std::shared_ptr<const Biases> biases_of(const char* operation, const AttentionOptions& options, int64_t batch,
                                        int64_t heads);

}  // namespace alibi::kernels
