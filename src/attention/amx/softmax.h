// Computes the weights of a 32 x 32 block and its dropout mask (dropout.h) from its scores. A lane is a query, so its
// maximum, sum and bias are vector elements. One hash serves the two key rows in a row of a `pairs` tile.
#pragma once

#include "attention/amx/tiles.h"
#include "attention/dropout.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int64_t block_pairs = block_rows / 2;

/// The dropout draws of a block's queries and of its pairs of keys.
struct BlockDropout {
  const uint32_t* queries = nullptr;  ///< [32]
  const uint32_t* pairs = nullptr;    ///< [16]
  uint32_t threshold = 0;
};

inline void fill_query_draws(const DropoutMask& mask, int64_t row, uint32_t* draws) {
  for (int64_t i = 0; i < block_rows; ++i) draws[i] = mask.query_draw(row + i);
}
inline void fill_pair_draws(const DropoutMask& mask, int64_t row, uint32_t* draws) {
  for (int64_t i = 0; i < block_pairs; ++i) draws[i] = mask.pair_draw(row + 2 * i);
}

/// DropoutMask::bits of 16 queries and a pair of keys.
ALIBI_AMX_INLINE __m512i dropout_bits(const uint32_t* queries, uint32_t pair) {
  __m512i x = _mm512_add_epi32(_mm512_load_si512(queries), _mm512_set1_epi32(static_cast<int>(pair)));
  x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 16)), _mm512_set1_epi32(0x7feb352d));
  x = _mm512_mullo_epi32(_mm512_xor_si512(x, _mm512_srli_epi32(x, 15)),
                         _mm512_set1_epi32(static_cast<int>(0x846ca68bu)));
  return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

/// Pairs of bfloat16 weights. Dropped weights become zero.
ALIBI_AMX_INLINE __m512i drop_pairs(__m512i weights, __m512i bits, uint32_t threshold) {
  const __mmask32 kept = _mm512_cmpge_epu16_mask(bits, _mm512_set1_epi16(static_cast<int16_t>(threshold)));
  return _mm512_maskz_mov_epi16(kept, weights);
}

/// The lanes that keep the weight of the pair's second or first key.
ALIBI_AMX_INLINE __mmask16 kept_lanes(__m512i bits, bool second, uint32_t threshold) {
  return _mm512_cmpge_epu32_mask(second ? bits : _mm512_slli_epi32(bits, 16),
                                 _mm512_set1_epi32(static_cast<int>(threshold << 16)));
}

/// Two vectors with one lane for each query of a block.
struct Lanes {
  __m512 low, high;
};
ALIBI_AMX_INLINE Lanes load_lanes(const float* values) { return {_mm512_load_ps(values), _mm512_load_ps(values + 16)}; }
ALIBI_AMX_INLINE void store_lanes(float* values, const Lanes& lanes) {
  _mm512_store_ps(values, lanes.low);
  _mm512_store_ps(values + 16, lanes.high);
}

/// Forget gates of a block, in log2 units: the score of key r and query c gets queries[c] - keys[r].
struct BlockGates {
  const float* queries = nullptr;  ///< [32]; null: none
  const float* keys = nullptr;     ///< [32]
};
/// Adds the queries' part.
ALIBI_AMX_INLINE Lanes with_queries(const Lanes& addend, const BlockGates& gates) {
  if (gates.queries == nullptr) return addend;
  const Lanes of_queries = load_lanes(gates.queries);
  return {_mm512_add_ps(addend.low, of_queries.low), _mm512_add_ps(addend.high, of_queries.high)};
}
/// Subtracts a key's part.
template <bool gated>
ALIBI_AMX_INLINE __m512 with_key(__m512 addend, const BlockGates& gates, int64_t row) {
  return gated ? _mm512_sub_ps(addend, _mm512_set1_ps(gates.keys[row])) : addend;
}

ALIBI_AMX_INLINE Lanes times(const Lanes& lanes, __m512 factor) {
  return {_mm512_mul_ps(lanes.low, factor), _mm512_mul_ps(lanes.high, factor)};
}
ALIBI_AMX_INLINE void add_lanes(float* values, const Lanes& lanes) {
  const Lanes old = load_lanes(values);
  store_lanes(values, {_mm512_add_ps(old.low, lanes.low), _mm512_add_ps(old.high, lanes.high)});
}
ALIBI_AMX_INLINE void multiply_lanes(float* values, const Lanes& lanes) {
  const Lanes old = load_lanes(values);
  store_lanes(values, {_mm512_mul_ps(old.low, lanes.low), _mm512_mul_ps(old.high, lanes.high)});
}

/// Mask of the lanes [first, first + 16) that contain one of `rows` rows.
ALIBI_AMX_INLINE __mmask16 lane_mask(int64_t rows, int64_t first) {
  const int64_t left = rows - first;
  return static_cast<__mmask16>(left <= 0 ? 0 : left >= 16 ? 0xffff : (1 << left) - 1);
}

/// Sums of weights by lane. `exact` is used for the log-sum-exp and the skip rule. `rounded` sums the weights rounded
/// to bfloat16, which multiply the values: divided by it, the weights add up to one. Dropout does not change the sums.
struct Sums {
  Lanes exact, rounded;
};

/// Pairs of weights rounded to bfloat16. The weights of an even key row are in the lower halves, those of the next row
/// in the upper halves.
ALIBI_AMX_INLINE __m512i round_pairs(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);  // weights are positive, so adding half a unit and truncating rounds
  const __m512i e = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i o = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, e, o);
}

/// Writes P^T = exp2(factor * S^T + of_rows) as `pairs` tiles and adds it to the sums. Dropped weights are zero in the
/// tiles only.
template <bool drops, bool gated>
ALIBI_AMX_INLINE void make_weights(const float* scores, __m512 factor, const Lanes& of_rows, const BlockGates& gates,
                                   const BlockDropout& dropout, uint16_t* weights, Sums& sums) {
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  const Lanes addend = with_queries(of_rows, gates);
  for (int64_t pair = 0; pair < block_pairs; ++pair) {
    const auto weight = [&](const float* at, __m512 of_row, int64_t odd) {
      return exp2_of(_mm512_fmadd_ps(_mm512_load_ps(at), factor, with_key<gated>(of_row, gates, 2 * pair + odd)));
    };
    const float* row = scores + pair / 8 * 2 * tile_floats + pair % 8 * 32;
    const __m512 even_low = weight(row, addend.low, 0), odd_low = weight(row + 16, addend.low, 1);
    const __m512 even_high = weight(row + tile_floats, addend.high, 0);
    const __m512 odd_high = weight(row + tile_floats + 16, addend.high, 1);
    __m512i low = round_pairs(even_low, odd_low), high = round_pairs(even_high, odd_high);
    sums.exact.low = _mm512_add_ps(sums.exact.low, _mm512_add_ps(even_low, odd_low));
    sums.exact.high = _mm512_add_ps(sums.exact.high, _mm512_add_ps(even_high, odd_high));
    sums.rounded.low = add_pair_products(sums.rounded.low, low, ones);
    sums.rounded.high = add_pair_products(sums.rounded.high, high, ones);
    if (drops) {
      low = drop_pairs(low, dropout_bits(dropout.queries, dropout.pairs[pair]), dropout.threshold);
      high = drop_pairs(high, dropout_bits(dropout.queries + 16, dropout.pairs[pair]), dropout.threshold);
    }
    _mm512_store_si512(weights + pair * 32, low);
    _mm512_store_si512(weights + tile_halves + pair * 32, high);
  }
}

/// By how much 1 + f exceeds 2^f for f = i / 64 and a little more, in units of 1/128.
alignas(64) inline constexpr uint8_t exp2_excess[64] = {0,  1,  1,  2,  2,  3,  4,  4,  5,  5,  5,  6,  6,  7,  7,  8,
                                                        8,  8,  9,  9,  9,  9,  10, 10, 10, 10, 10, 11, 11, 11, 11, 11,
                                                        11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9,  9,
                                                        9,  8,  8,  8,  7,  7,  6,  6,  5,  5,  4,  3,  3,  2,  1,  1};

/// The same for scores of at most 2^6 that are no NaN, with a relative error of at most 2^-7 in each weight (0.23 % in
/// the mean; that of rounding alone is 0.17 %), and half the instructions. A bfloat16 number 2^e (1 + f) has the bits
/// 128 (e + 127 + f), so the bits of 2^x are about 128 (x + 127), less what a table says of the fraction.
template <bool drops, bool gated>
ALIBI_AMX_INLINE void make_rounded_weights(const float* scores, float factor, const Lanes& of_rows,
                                           const BlockGates& gates, const BlockDropout& dropout, uint16_t* weights,
                                           Lanes& sums) {
  const __m512 unit = _mm512_set1_ps(128), scale = _mm512_set1_ps(128 * factor), one = _mm512_set1_ps(127);
  const Lanes addend = with_queries(of_rows, gates);
  const Lanes shift = times({_mm512_add_ps(addend.low, one), _mm512_add_ps(addend.high, one)}, unit);
  const __m512i ones = _mm512_set1_epi16(0x3f80), zero = _mm512_setzero_si512();
  const __m512i excess = _mm512_load_si512(exp2_excess);
  const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  for (int64_t pair = 0; pair < block_pairs; ++pair) {
    const float* row = scores + pair / 8 * 2 * tile_floats + pair % 8 * 32;
    for (int64_t half = 0; half < 2; ++half, row += tile_floats) {
      const auto units = [&](int64_t odd) {
        __m512 of_pair = half == 0 ? shift.low : shift.high;
        if (gated) of_pair = _mm512_fnmadd_ps(_mm512_set1_ps(gates.keys[2 * pair + odd]), unit, of_pair);
        return _mm512_cvtps_epi32(_mm512_fmadd_ps(_mm512_load_ps(row + 16 * odd), scale, of_pair));
      };
      const __m512i even = units(0), odd = units(1);
      // Four bits of the even row and four of the odd one take turns. Large negative numbers become -2^15, then 0.
      __m512i bits = _mm512_max_epi16(_mm512_packs_epi32(even, odd), zero);
      bits = _mm512_sub_epi16(bits, look_up(excess, _mm512_srli_epi16(bits, 1)));
      bits = _mm512_shuffle_epi8(bits, pairs);
      __m512& sum = half == 0 ? sums.low : sums.high;
      sum = add_pair_products(sum, bits, ones);
      if (drops) {
        bits = drop_pairs(bits, dropout_bits(dropout.queries + 16 * half, dropout.pairs[pair]), dropout.threshold);
      }
      _mm512_store_si512(weights + half * tile_halves + pair * 32, bits);
    }
  }
}

/// max = maximum of max and factor * S^T + base.
template <bool gated>
ALIBI_AMX_INLINE void take_maximum(const float* scores, __m512 factor, __m512 base, const BlockGates& gates,
                                   Lanes& max) {
  const Lanes addend = with_queries({base, base}, gates);
  for (int64_t row = 0; row < block_rows; ++row) {
    const float* at = scores + row / 16 * 2 * tile_floats + row % 16 * 16;
    const __m512 low = with_key<gated>(addend.low, gates, row), high = with_key<gated>(addend.high, gates, row);
    max.low = _mm512_max_ps(max.low, _mm512_fmadd_ps(_mm512_load_ps(at), factor, low));
    max.high = _mm512_max_ps(max.high, _mm512_fmadd_ps(_mm512_load_ps(at + tile_floats), factor, high));
  }
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
