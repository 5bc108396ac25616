// The dropout mask (dropout.h) of a 32 x 32 block: a query's draw is a lane, and one hash decides for the
// two key rows that a row of a `pairs` tile holds.
#pragma once

#include "attention/amx/tiles.h"
#include "attention/dropout.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int64_t block_pairs = block_rows / 2;

/// The draws of a block's queries and of its pairs of keys.
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

/// Pairs of bfloat16 weights without those that are dropped.
ALIBI_AMX_INLINE __m512i drop_pairs(__m512i weights, __m512i bits, uint32_t threshold) {
  const __mmask32 kept = _mm512_cmpge_epu16_mask(bits, _mm512_set1_epi16(static_cast<int16_t>(threshold)));
  return _mm512_maskz_mov_epi16(kept, weights);
}

/// The lanes that keep the weights of the pair's second key, or of its first.
ALIBI_AMX_INLINE __mmask16 kept_lanes(__m512i bits, bool second, uint32_t threshold) {
  return _mm512_cmpge_epu32_mask(second ? bits : _mm512_slli_epi32(bits, 16),
                                 _mm512_set1_epi32(static_cast<int>(threshold << 16)));
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
