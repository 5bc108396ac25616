// The AMX tile registers and the few AVX-512 idioms around them. Only the amx_*.cc files include this header; what is
// between ALIBI_AMX_BEGIN and ALIBI_AMX_END is compiled for these instructions, whatever the rest of the file is for.
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

// g++ 12 takes the undefined operands in its own header for mistakes (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>

#define ALIBI_AMX_TARGETS \
  "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512bf16,amx-tile,amx-bf16,bmi,bmi2,lzcnt,popcnt"
#define ALIBI_AMX_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ALIBI_AMX_BEGIN_(targets) \
  ALIBI_AMX_PRAGMA(clang attribute push(__attribute__((target(targets))), apply_to = function))
#define ALIBI_AMX_BEGIN ALIBI_AMX_BEGIN_(ALIBI_AMX_TARGETS)
#define ALIBI_AMX_END ALIBI_AMX_PRAGMA(clang attribute pop)
#else
#define ALIBI_AMX_BEGIN_(targets) ALIBI_AMX_PRAGMA(GCC push_options) ALIBI_AMX_PRAGMA(GCC target targets)
#define ALIBI_AMX_BEGIN ALIBI_AMX_BEGIN_((ALIBI_AMX_TARGETS))
#define ALIBI_AMX_END ALIBI_AMX_PRAGMA(GCC pop_options)
#endif
#define ALIBI_AMX_INLINE static inline __attribute__((always_inline))

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int64_t block_rows = 32;
inline constexpr int64_t tile_halves = 512;    ///< bfloat16 values of a tile
inline constexpr int64_t tile_floats = 256;    ///< float32 values of a tile
inline constexpr int64_t block_floats = 1024;  ///< of a 32 x 32 block of float32
inline constexpr int64_t block_halves = 1024;  ///< of a 32 x 32 block of bfloat16
inline constexpr int64_t vector_floats = 16;   ///< of a register

/// While it lives, this thread's tile registers are in use, all eight of full size.
class TileScope {
 public:
  TileScope() {
    struct alignas(64) Configuration {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Configuration configuration;
    asm volatile("ldtilecfg %0" ::"m"(configuration));
  }
  ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// `stride` in bytes; 0 repeats one row.
template <int tile>
ALIBI_AMX_INLINE void load_tile(const void* data, int64_t stride = 64) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(data), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
ALIBI_AMX_INLINE void store_tile(void* data) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(data), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int tile>
ALIBI_AMX_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
/// c += a b
template <int c, int a, int b>
ALIBI_AMX_INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

/// A float32 block in tiles 0 to 3.
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

/// The same for `count` pairs of blocks, `stride` apart on the left, and contiguous on the right.
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

/// 2^x to 3e-6 relative: a polynomial (minimax, degree 4) of the fraction, scaled by the whole part. Very negative x
/// gives 0, NaN stays NaN.
ALIBI_AMX_INLINE __m512 exp2_of(__m512 x) {
  const __m512 fraction = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_fmadd_ps(fraction, _mm512_set1_ps(0.0135341681f), _mm512_set1_ps(0.0520114603f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.241442757f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(0.693003834f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(1.00000259f));
  return _mm512_scalef_ps(p, x);
}

/// log2 of positive numbers to 1e-7 absolute near 1, else relative: atanh series of the mantissa about sqrt(2).
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
