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

/// Larger than any distance, but small enough to be added to one without overflow.
inline constexpr int64_t unbounded = int64_t{1} << 42;

/// The bias of one head of one batch entry.
struct HeadBias {
  float slope_before = 0;  ///< for keys at distance > 0
  float slope_after = 0;   ///< for keys at distance < 0
  const float* table =
      nullptr;  ///< the bias of distance d is table[d] for |d| <= farthest; the end values apply beyond
  int64_t farthest = 0;
  int64_t least = -unbounded;  ///< range of distances that are seen, from causality, window and closed directions
  int64_t most = unbounded;

  bool sees(int64_t distance) const { return least <= distance && distance <= most; }
  /// The bias of a key that is seen.
  float at(int64_t distance) const {
    if (table != nullptr) return table[std::clamp(distance, -farthest, farthest)];
    return -slope(distance) * static_cast<float>(distance < 0 ? -distance : distance);
  }
  /// The same in float64.
  double precise_at(int64_t distance) const {
    if (table != nullptr) return static_cast<double>(at(distance));
    return -static_cast<double>(slope(distance)) * static_cast<double>(distance < 0 ? -distance : distance);
  }
  /// The slope on the side of the distance. It is 0 at distance 0, even in a closed direction.
  float slope(int64_t distance) const { return distance > 0 ? slope_before : distance < 0 ? slope_after : 0; }
};

/// The biases of all heads of a call, computed from its options.
struct Biases {
  std::vector<float> slopes_before, slopes_after;  ///< [sequences * heads], 0 without a linear bias; +infinity
                                                   ///< closes the direction
  bool slopes_per_sequence = false;                ///< whether dslopes is [sequences * heads] instead of [heads]
  bool slopes_symmetric = true;  ///< whether slopes_after is unset, so that dslopes sums both directions

  int64_t rows = 0;             ///< rows of the caller's table [rows, heads]; 0 without a table
  int64_t farthest = 0;         ///< the table distinguishes distances from -farthest to farthest
  std::vector<int32_t> row_of;  ///< [2 * farthest + 1]: the caller's row for each distance
  std::vector<float> table;     ///< [heads][2 * farthest + 1]: the caller's values by distance
  std::vector<float> largest;   ///< [heads]: largest magnitude of the values, or infinity if any is not finite

  /// The caller's row for a distance.
  int32_t row(int64_t distance) const {
    return row_of[static_cast<size_t>(std::clamp(distance, -farthest, farthest) + farthest)];
  }
};

/// `sequences` is the number of packed sequences, or of batch entries. Throws Error that names the option. Messages
/// begin with `operation`.
Biases make_biases(const char* operation, const AttentionOptions& options, int64_t sequences, int64_t heads);

/// During its lifetime, calls in this thread share their biases if the biases are equal, as in the layers of a model.
/// The values of tables must not change meanwhile.
class ReuseBiases {
 public:
  ReuseBiases();
  ~ReuseBiases();
  ReuseBiases(const ReuseBiases&) = delete;
  ReuseBiases& operator=(const ReuseBiases&) = delete;

 private:
  friend std::shared_ptr<const Biases> biases_of(const char*, const AttentionOptions&, int64_t, int64_t);
  bool has(const AttentionOptions& options, int64_t sequences, int64_t heads) const;

  ReuseBiases* outer_;
  AttentionOptions
      options_;  // options of the shared biases; they keep the tables alive, so no other table can get the same address
  int64_t sequences_ = 0, heads_ = 0;
  std::shared_ptr<const Biases> biases_;
};

/// The result of make_biases(), shared with other calls during the lifetime of a ReuseBiases.
std::shared_ptr<const Biases> biases_of(const char* operation, const AttentionOptions& options, int64_t sequences,
                                        int64_t heads);

}  // namespace alibi::kernels
