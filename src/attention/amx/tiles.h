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

#include <cstring>
#include <optional>

#include "alibi/runtime.h"
#include "attention/amx/instructions.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int64_t block_rows = 32;
inline constexpr int64_t tile_halves = 512;    ///< bfloat16 values in a tile
inline constexpr int64_t tile_floats = 256;    ///< float32 values in a tile
inline constexpr int64_t block_floats = 1024;  ///< values in a 32 x 32 block of float32
inline constexpr int64_t block_halves = 1024;  ///< values in a 32 x 32 block of bfloat16
inline constexpr int64_t vector_floats = 16;   ///< float32 values in a vector register

/// Where the sums of a block product start: value (r, c) of the block is at[r / 16 * lower + r % 16 * row + c / 16 *
/// right
/// + c % 16], or zero if `at` is null.
struct Start {
  const float* at = nullptr;
  int64_t row = 0, lower = 0, right = 0;

  static Start zero() { return {}; }
  /// A float32 block.
  static Start block(const float* block) { return {block, vector_floats, 2 * tile_floats, tile_floats}; }
  /// Every row is the same 32 values.
  static Start rows(const float* row) { return {row, 0, 0, vector_floats}; }
  /// Value (r, c) is diagonals[31 + c - r].
  static Start diagonals(const float* diagonals) {
    return {diagonals + block_rows - 1, -1, -vector_floats, vector_floats};
  }
};

/// The pairs of blocks whose products are added up. A has `rows` or `transposed` tiles and B `columns` or `pairs`
/// tiles.
struct Operands {
  static constexpr int64_t most = 8;
  const uint16_t* a[most];
  const uint16_t* b[most];
  int64_t count = 0;

  Operands() = default;
  /// Blocks at equal distances.
  Operands(const uint16_t* first_a, int64_t stride_a, const uint16_t* first_b, int64_t stride_b, int64_t number) {
    for (int64_t i = 0; i < number; ++i) add(first_a + i * stride_a, first_b + i * stride_b);
  }
  void add(const uint16_t* left, const uint16_t* right) {
    a[count] = left;
    b[count++] = right;
  }
};

/// Products of blocks with the instructions of AMX, or with those of AVX512-BF16. An object must exist while its thread
/// uses them.
class BlockProducts {
 public:
  BlockProducts() : on_tiles_(isa() == Isa::amx) {
    if (on_tiles_) tiles_.emplace();
  }

  /// sums = start + the sum of a b over the operands; a float32 block.
  ALIBI_AMX_METHOD void multiply(const Start& start, const Operands& operands, float* sums) const {
    if (on_tiles_) return multiply_on_tiles(start, operands, sums);
    for (int64_t row = 0; row < block_rows; row += vector_rows) multiply_in_vectors(start, operands, row, sums);
  }

 private:
  static constexpr int vector_rows = 8;  ///< rows whose sums are in registers, two vectors each

  ALIBI_AMX_METHOD void multiply_on_tiles(const Start& start, const Operands& operands, float* sums) const {
    if (start.at == nullptr) {
      zero_tile<0>();
      zero_tile<1>();
      zero_tile<2>();
      zero_tile<3>();
    } else {
      const int64_t stride = start.row * static_cast<int64_t>(sizeof(float));
      load_tile<0>(start.at, stride);
      load_tile<1>(start.at + start.right, stride);
      load_tile<2>(start.at + start.lower, stride);
      load_tile<3>(start.at + start.lower + start.right, stride);
    }
    for (int64_t i = 0; i < operands.count; ++i) {
      load_tile<4>(operands.a[i]);
      load_tile<6>(operands.b[i]);
      load_tile<7>(operands.b[i] + tile_halves);
      load_tile<5>(operands.a[i] + tile_halves);
      multiply_tiles<0, 4, 6>();
      multiply_tiles<1, 4, 7>();
      multiply_tiles<2, 5, 6>();
      multiply_tiles<3, 5, 7>();
    }
    store_tile<0>(sums);
    store_tile<1>(sums + tile_floats);
    store_tile<2>(sums + 2 * tile_floats);
    store_tile<3>(sums + 3 * tile_floats);
  }

  /// The rows [row, row + vector_rows) of a product.
  ALIBI_AMX_METHOD static void multiply_in_vectors(const Start& start, const Operands& operands, int64_t row,
                                                   float* sums) {
    __m512 sum[vector_rows][2];
    const float* first = start.at + row / 16 * start.lower + row % 16 * start.row;
    for (int r = 0; r < vector_rows; ++r) {
      sum[r][0] = start.at == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(first + r * start.row);
      sum[r][1] = start.at == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(first + r * start.row + start.right);
    }
    for (int64_t i = 0; i < operands.count; ++i) {
      const uint16_t *a = operands.a[i] + row * 32, *b = operands.b[i];
      for (int64_t k = 0; k < 32; k += 2) {
        const __m512i left = _mm512_load_si512(b + k * 16), right = _mm512_load_si512(b + k * 16 + tile_halves);
        for (int r = 0; r < vector_rows; ++r) {
          int pair;
          std::memcpy(&pair, a + r * 32 + k, sizeof pair);
          sum[r][0] = add_pair_products(sum[r][0], _mm512_set1_epi32(pair), left);
          sum[r][1] = add_pair_products(sum[r][1], _mm512_set1_epi32(pair), right);
        }
      }
    }
    float* to = sums + row / 16 * 2 * tile_floats + row % 16 * vector_floats;
    for (int r = 0; r < vector_rows; ++r) {
      _mm512_store_ps(to + r * vector_floats, sum[r][0]);
      _mm512_store_ps(to + r * vector_floats + tile_floats, sum[r][1]);
    }
  }

  bool on_tiles_;
  std::optional<TileScope> tiles_;
};

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
