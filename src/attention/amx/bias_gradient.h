// The gradient of the bias on AMX. The bias is a function of the distance, so its gradient is dS summed along the
// diagonals of the blocks. Blocks equally far from the diagonal share their 63 distances and one set of sums; only
// those meet the buckets or the slope.
#pragma once

#include <cstring>

#include "attention/amx/tiles.h"
#include "attention/bias_gradient.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

/// What of a block's dS the bias wants.
enum class BiasPart : uint8_t {
  none,
  total,      ///< all distances share one bucket: sums of the lanes will do
  diagonals,  ///< a sum for each distance
};

/// Sums of dS over the block pairs of a key span and a query span of one head.
class DiagonalSums {
 public:
  static int64_t floats(int64_t key_blocks, int64_t query_blocks) {
    return (key_blocks + query_blocks) * sums_size + block_rows * sums_size;
  }

  DiagonalSums(int64_t key_blocks, int64_t query_blocks, float* memory)
      : key_blocks_(key_blocks),
        count_(key_blocks + query_blocks),
        skewed_(memory),
        sums_(memory + block_rows * sums_size) {
    std::memset(memory, 0, static_cast<size_t>(floats(key_blocks, query_blocks)) * sizeof(float));
  }

  /// Where the 32 lanes of key row r go, so that distances lie below each other.
  float* skewed_row(int64_t r) const { return skewed_ + r * sums_size + block_rows - 1 - r; }

  /// Adds the block in the skewed rows.
  void add_diagonals(int64_t key, int64_t query) {
    float* sums = at(key, query);
    for (int64_t half = 0; half < 2; ++half) {
      const float* from = skewed_ + 2 * half * vector_floats;
      __m512 even[2] = {_mm512_load_ps(sums + 32 * half), _mm512_load_ps(sums + 32 * half + vector_floats)};
      __m512 odd[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int64_t r = 0; r < block_rows; r += 2, from += 2 * sums_size) {
        for (int64_t i = 0; i < 2; ++i) {
          even[i] = _mm512_add_ps(even[i], _mm512_load_ps(from + i * vector_floats));
          odd[i] = _mm512_add_ps(odd[i], _mm512_load_ps(from + sums_size + i * vector_floats));
        }
      }
      for (int64_t i = 0; i < 2; ++i) {
        _mm512_store_ps(sums + 32 * half + i * vector_floats, _mm512_add_ps(even[i], odd[i]));
      }
    }
  }

  /// Adds a block whose distances share a bucket, as sums of its lanes.
  void add_total(int64_t key, int64_t query, __m512 low, __m512 high) {
    float* sums = at(key, query);
    _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), low));
    _mm512_store_ps(sums + vector_floats, _mm512_add_ps(_mm512_load_ps(sums + vector_floats), high));
  }

  /// Hands the sums over, times `scale`. `distance` is that of the first query from the first key of the spans.
  void finish(const Problem& problem, int64_t distance, float scale, BiasGradient& gradient) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t first = distance + (i - (key_blocks_ - 1)) * block_rows - (block_rows - 1);
      for (int64_t d = 0; d < sums_size - 1; ++d) {
        const auto sum = static_cast<double>(sums_[i * sums_size + d]) * static_cast<double>(scale);
        if (sum != 0) gradient.add(problem, first + d, 0, sum);
      }
    }
  }

 private:
  static constexpr int64_t sums_size = 2 * block_rows;

  float* at(int64_t key, int64_t query) const { return sums_ + (query - key + key_blocks_ - 1) * sums_size; }

  int64_t key_blocks_, count_;
  float* skewed_;  ///< [32][64]
  float* sums_;    ///< [query block - key block + key_blocks - 1][64]
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
