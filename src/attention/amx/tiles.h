// Blocks in tile registers, and the few AVX-512 idioms around them. Only the files of amx/ include this header.
//
// A tile has 16 rows of 64 bytes. C += A B with C [16][16] float32, A [16][32] bfloat16 and B [32][16] bfloat16, where
// B lies as pairs of its rows: row p of the tile holds (B[2p][n], B[2p + 1][n]) for n = 0..15.
//
// All matrices here are cut into blocks of 32 rows, and blocks into tiles that lie one after the other, so that a tile
// is always one KiB of contiguous memory:
//   rows         A: [step][row half][16 rows][32 columns]       a block as it is, for products over columns
//   columns      B: [step][row half][16 column pairs][16 rows]  its transpose, for products over columns
//   pairs        B: [column tile][16 row pairs][16 columns]     a block as it is, for products over rows
//   transposed   A: [column tile][16 columns][32 rows]          its transpose, for products over rows
// with step = 32 columns and column tile = 16 columns. Float32 blocks are [step][row half][column half][16][16].
#pragma once

#include "attention/amx/instructions.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int64_t block_rows = 32;
inline constexpr int64_t tile_halves = 512;    ///< bfloat16 values in a tile
inline constexpr int64_t tile_floats = 256;    ///< float32 values in a tile
inline constexpr int64_t block_floats = 1024;  ///< values in a 32 x 32 block of float32
inline constexpr int64_t block_halves = 1024;  ///< values in a 32 x 32 block of bfloat16
inline constexpr int64_t vector_floats = 16;   ///< float32 values in a vector register

/// Loads a float32 block into tiles 0 to 3.
ALIBI_AMX_INLINE void load_block(const float* block) {
  load_tile<0>(block);
  load_tile<1>(block + tile_floats);
  load_tile<2>(block + 2 * tile_floats);
  load_tile<3>(block + 3 * tile_floats);
}
ALIBI_AMX_INLINE void store_block(float* block) {
  store_tile<0>(block);
  store_tile<1>(block + tile_floats);
  store_tile<2>(block + 2 * tile_floats);
  store_tile<3>(block + 3 * tile_floats);
}
ALIBI_AMX_INLINE void zero_block() {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
}
/// Tiles 0 to 3 += the product of two A tiles and two B tiles, each pair contiguous.
ALIBI_AMX_INLINE void multiply_block(const uint16_t* a, const uint16_t* b) {
  load_tile<4>(a);
  load_tile<6>(b);
  load_tile<7>(b + tile_halves);
  load_tile<5>(a + tile_halves);
  multiply_tiles<0, 4, 6>();
  multiply_tiles<1, 4, 7>();
  multiply_tiles<2, 5, 6>();
  multiply_tiles<3, 5, 7>();
}

/// multiply_block() for `count` pairs of blocks. The left blocks are `stride` apart, the right blocks are contiguous.
ALIBI_AMX_INLINE void multiply_blocks(const uint16_t* a, int64_t stride, const uint16_t* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) multiply_block(a + i * stride, b + i * block_halves);
}

/// Transposes 16 x 16 values of 32 bits.
ALIBI_AMX_INLINE void transpose(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/// 2^x with a relative error of 3e-6: a polynomial (minimax, degree 4) of the fraction, scaled by the integer part.
/// Very negative x gives 0, NaN stays NaN.
ALIBI_AMX_INLINE __m512 exp2_of(__m512 x) {
  const __m512 fraction = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_fmadd_ps(fraction, _mm512_set1_ps(0.0135341681f), _mm512_set1_ps(0.0520114603f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.241442757f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.693003834f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(1.00000259f));
  return _mm512_scalef_ps(p, x);
}

/// log2 of positive numbers. The error is 1e-7, absolute near 1 and relative elsewhere. Uses the atanh series of the
/// mantissa around sqrt(2).
ALIBI_AMX_INLINE __m512 log2_of(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  __m512 exponent = _mm512_getexp_ps(x);
  __m512 mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  const __mmask16 high = _mm512_cmp_ps_mask(mantissa, _mm512_set1_ps(1.41421356f), _CMP_GT_OQ);
  mantissa = _mm512_mask_mul_ps(mantissa, high, mantissa, _mm512_set1_ps(0.5f));
  exponent = _mm512_mask_add_ps(exponent, high, exponent, one);
  const __m512 z = _mm512_div_ps(_mm512_sub_ps(mantissa, one), _mm512_add_ps(mantissa, one));
  const __m512 w = _mm512_mul_ps(z, z);
  // 2 / ln(2) * (z + z^3 / 3 + z^5 / 5 + ...), |z| <= 0.1716
  __m512 p = _mm512_fmadd_ps(w, _mm512_set1_ps(0.320598897f), _mm512_set1_ps(0.412198583f));
  p = _mm512_fmadd_ps(p, w, _mm512_set1_ps(0.577078016f));
  p = _mm512_fmadd_ps(p, w, _mm512_set1_ps(0.961796694f));
  p = _mm512_fmadd_ps(p, w, _mm512_set1_ps(2.885390082f));
  return _mm512_fmadd_ps(p, z, exponent);
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
