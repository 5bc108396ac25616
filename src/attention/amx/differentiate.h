// Computes P^T and dS^T in the tile layouts of the backward pass, and the gradient of the bias, from the scores of a 32
// x 32 block and its dP. The bias is a function of the distance, so its gradient is dS summed along the diagonals of
// the blocks. Blocks at the same offset from the diagonal have the same 63 distances and share one set of sums, which
// are then added to the gradient of the bias.
#pragma once

#include <cstring>

#include "attention/amx/softmax.h"
#include "attention/amx/tiles.h"
#include "attention/bias_gradient.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

/// The sums of a block's dS that the gradient of the bias needs.
enum class BiasPart : uint8_t {
  none,
  total,      ///< one sum, kept by lane: all distances have the same parameter
  diagonals,  ///< one sum for each distance
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

  /// Memory for the 32 lanes of key row r, shifted so that equal distances are in the same column.
  float* skewed_row(int64_t r) const { return skewed_ + r * sums_size + block_rows - 1 - r; }

  /// Adds the block that was written to the skewed rows.
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

  /// Adds a block whose distances all have the same parameter, as sums of its lanes.
  void add_total(int64_t key, int64_t query, __m512 low, __m512 high) {
    float* sums = at(key, query);
    _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), low));
    _mm512_store_ps(sums + vector_floats, _mm512_add_ps(_mm512_load_ps(sums + vector_floats), high));
  }

  /// Adds the sums, times `scale`, to the gradient. `distance` is the distance from the first key to the first query.
  void finish(const Bias& bias, int64_t distance, float scale, BiasGradient& gradient) const {
    for (int64_t i = 0; i < count_; ++i) {
      double sums[sums_size - 1];
      bool any = false;
      for (int64_t d = 0; d < sums_size - 1; ++d) {
        sums[d] = static_cast<double>(sums_[i * sums_size + d]) * static_cast<double>(scale);
        any |= sums[d] != 0;
      }
      if (!any) continue;  // no block at this offset was visited
      bias.add_gradient(distance + (i - (key_blocks_ - 1)) * block_rows - (block_rows - 1), 0, sums, gradient.data());
    }
  }

 private:
  static constexpr int64_t sums_size = 2 * block_rows;

  float* at(int64_t key, int64_t query) const { return sums_ + (query - key + key_blocks_ - 1) * sums_size; }

  int64_t key_blocks_, count_;
  float* skewed_;  ///< [32][64]
  float* sums_;    ///< [query block - key block + key_blocks - 1][64]
};

/// What a pair of blocks contributes to the products of the gradients.
struct PairTiles {
  uint16_t* weights;      ///< Z P^T: `rows` tiles
  uint16_t* score_rows;   ///< dS^T: `rows` tiles
  uint16_t* score_pairs;  ///< dS^T: `pairs` tiles, queries interleaved (RowOrder)
};

/// The numbers of a block pair that are not tiles.
struct PairScalars {
  float factor = 0;                    ///< factor of the scores
  float base = 0;                      ///< added to the scores
  BlockGates gates = {};               ///< added to the scores
  const float* log_sums = nullptr;     ///< [32], log2
  const float* minus_delta = nullptr;  ///< [32]
  BlockDropout dropout = {};
  int64_t key = 0, query = 0;  ///< block numbers within the spans
  float* query_sums =
      nullptr;                ///< [32]: the sums of dS of each query are added, for the gradient of the gates; or null
  float* key_sums = nullptr;  ///< [32]: the same of each key
};

/// sums[i] += the sum of the 16 numbers of row i, for 32 rows.
ALIBI_AMX_INLINE void add_row_sums(const float* rows, float* sums) {
  for (int64_t half = 0; half < block_rows; half += vector_floats) {
    __m512i r[vector_floats];
    for (int64_t i = 0; i < vector_floats; ++i) r[i] = _mm512_load_si512(rows + (half + i) * vector_floats);
    transpose(r);
    __m512 sum = _mm512_load_ps(sums + half);
    for (const __m512i& column : r) sum = _mm512_add_ps(sum, _mm512_castsi512_ps(column));
    _mm512_store_ps(sums + half, sum);
  }
}

/// Computes P^T and dS^T from the scores and dP^T - delta. With dropout, Z is 0 or 1, the weights are Z P and dS = P (Z
/// dP - delta). The caller multiplies the sums by the factor of the remaining weights.
template <bool drops, bool gated, BiasPart part>
ALIBI_AMX_INLINE void differentiate(const float* scores, const float* dweights, const PairScalars& pair,
                                    const PairTiles& to, DiagonalSums* sums) {
  const __m512 scale = _mm512_set1_ps(pair.factor);
  const __m512 base = _mm512_set1_ps(pair.base);
  const Lanes log_sums = load_lanes(pair.log_sums);
  const Lanes addend =
      with_queries({_mm512_sub_ps(base, log_sums.low), _mm512_sub_ps(base, log_sums.high)}, pair.gates);
  __m512 total_low = _mm512_setzero_ps(), total_high = _mm512_setzero_ps();
  alignas(64) float of_keys[gated ? block_rows * vector_floats : 1];
  for (int64_t i = 0; i < block_pairs; ++i) {
    __m512i bits_low = _mm512_setzero_si512(), bits_high = bits_low;
    if (drops) {
      bits_low = dropout_bits(pair.dropout.queries, pair.dropout.pairs[i]);
      bits_high = dropout_bits(pair.dropout.queries + vector_floats, pair.dropout.pairs[i]);
    }
    __m512i rows[2];
    for (int64_t odd = 0; odd < 2; ++odd) {
      const int64_t row = 2 * i + odd;
      const int64_t at = row / 16 * 2 * tile_floats + row % 16 * 16;
      __m512 low = addend.low, high = addend.high;
      if (pair.gates.keys != nullptr) {
        low = with_key<true>(low, pair.gates, row);
        high = with_key<true>(high, pair.gates, row);
      }
      __m512 p_low = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(scores + at), scale, low));
      __m512 p_high = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(scores + at + tile_floats), scale, high));
      __m512 dp_low = _mm512_load_ps(dweights + at), dp_high = _mm512_load_ps(dweights + at + tile_floats);
      __mmask16 kept_low = 0xffff, kept_high = 0xffff;
      if (drops) {
        kept_low = kept_lanes(bits_low, odd != 0, pair.dropout.threshold);
        kept_high = kept_lanes(bits_high, odd != 0, pair.dropout.threshold);
        dp_low = _mm512_mask_mov_ps(_mm512_load_ps(pair.minus_delta), kept_low, dp_low);
        dp_high = _mm512_mask_mov_ps(_mm512_load_ps(pair.minus_delta + vector_floats), kept_high, dp_high);
      }
      const __m512 ds_low = _mm512_mul_ps(p_low, dp_low), ds_high = _mm512_mul_ps(p_high, dp_high);
      if (drops) {
        p_low = _mm512_maskz_mov_ps(kept_low, p_low);
        p_high = _mm512_maskz_mov_ps(kept_high, p_high);
      }
      rows[odd] = to_bfloat16(ds_low, ds_high);
      _mm512_store_si512(to.weights + row * 32, to_bfloat16(p_low, p_high));
      _mm512_store_si512(to.score_rows + row * 32, rows[odd]);
      if (gated) _mm512_store_ps(of_keys + row * vector_floats, _mm512_add_ps(ds_low, ds_high));
      if (gated || part == BiasPart::total) {
        total_low = _mm512_add_ps(total_low, ds_low);
        total_high = _mm512_add_ps(total_high, ds_high);
      }
      if (part == BiasPart::diagonals) {
        _mm512_storeu_ps(sums->skewed_row(row), ds_low);
        _mm512_storeu_ps(sums->skewed_row(row) + vector_floats, ds_high);
      }
    }
    _mm512_store_si512(to.score_pairs + i * 32, _mm512_unpacklo_epi16(rows[0], rows[1]));
    _mm512_store_si512(to.score_pairs + tile_halves + i * 32, _mm512_unpackhi_epi16(rows[0], rows[1]));
  }
  if (gated) {
    add_lanes(pair.query_sums, {total_low, total_high});
    add_row_sums(of_keys, pair.key_sums);
  }
  if (part == BiasPart::total) sums->add_total(pair.key, pair.query, total_low, total_high);
  if (part == BiasPart::diagonals) sums->add_diagonals(pair.key, pair.query);
}

/// Calls the template above with arguments known only at run time.
template <bool drops, bool gated>
void differentiate(BiasPart part, const float* scores, const float* dweights, const PairScalars& pair,
                   const PairTiles& to, DiagonalSums* sums) {
  if (part == BiasPart::none) {
    differentiate<drops, gated, BiasPart::none>(scores, dweights, pair, to, sums);
  } else if (part == BiasPart::total) {
    differentiate<drops, gated, BiasPart::total>(scores, dweights, pair, to, sums);
  } else {
    differentiate<drops, gated, BiasPart::diagonals>(scores, dweights, pair, to, sums);
  }
}
inline void differentiate(BiasPart part, const float* scores, const float* dweights, const PairScalars& pair,
                          const PairTiles& to, DiagonalSums* sums) {
  const bool drops = pair.dropout.queries != nullptr, gated = pair.key_sums != nullptr;
  const auto call = drops ? (gated ? differentiate<true, true> : differentiate<true, false>)
                          : (gated ? differentiate<false, true> : differentiate<false, false>);
  call(part, scores, dweights, pair, to, sums);
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
