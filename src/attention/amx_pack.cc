#if defined(__x86_64__)
#include "attention/amx_pack.h"

#include <cmath>

#include "attention/amx_tiles.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {
namespace {

/// The lanes of `wide` columns from `column` that a row has.
ALIBI_AMX_INLINE uint32_t lanes(int64_t columns, int64_t column, int wide) {
  const int64_t left = columns - column;
  if (left <= 0) return 0;
  return left >= 32 ? (wide == 32 ? 0xffffffffu : 0xffffu) : _bzhi_u32(wide == 32 ? 0xffffffffu : 0xffffu, left);
}

/// 32 columns of a row, zeros beyond the source.
ALIBI_AMX_INLINE __m512i load_32(const Source& source, int64_t row, int64_t column) {
  if (row >= source.rows) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(lanes(source.columns, column, 32), source.data + row * source.stride + column);
}

/// 16 columns of a row in the low halves of 32-bit lanes.
ALIBI_AMX_INLINE __m512i load_16(const Source& source, int64_t row, int64_t column) {
  if (row >= source.rows) return _mm512_setzero_si512();
  const auto mask = static_cast<__mmask16>(lanes(source.columns, column, 16));
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, source.data + row * source.stride + column));
}

/// The pairs of rows (2 i, 2 i + 1) of 16 columns.
ALIBI_AMX_INLINE void load_pairs(const Source& source, int64_t column, __m512i* pairs) {
  for (int i = 0; i < 16; ++i) {
    const __m512i odd = _mm512_slli_epi32(load_16(source, 2 * i + 1, column), 16);
    pairs[i] = _mm512_or_si512(load_16(source, 2 * i, column), odd);
  }
}

ALIBI_AMX_INLINE void store_16(const Target& target, int64_t row, int64_t column, __m512 values) {
  if (row >= target.rows) return;
  const auto mask = static_cast<__mmask16>(lanes(target.columns, column, 16));
  const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(values);
  _mm256_mask_storeu_epi16(target.data + row * target.stride + column, mask, rounded);
}

}  // namespace

void pack_rows(const Source& source, uint16_t* tiles) {
  for (int64_t step = 0; step < steps_of(source.columns); ++step) {
    for (int64_t row = 0; row < 32; ++row) {
      _mm512_store_si512(tiles + step * block_halves + row * 32, load_32(source, row, 32 * step));
    }
  }
}

void pack_columns(const Source& source, uint16_t* tiles) {
  for (int64_t step = 0; step < steps_of(source.columns); ++step) {
    for (int64_t half = 0; half < 2; ++half, tiles += tile_halves) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) r[i] = load_32(source, 16 * half + i, 32 * step);
      transpose(r);
      for (int i = 0; i < 16; ++i) _mm512_store_si512(tiles + 32 * i, r[i]);
    }
  }
}

void pack_pairs(const Source& source, uint16_t* tiles) {
  for (int64_t column = 0; column < 32 * steps_of(source.columns); column += 16, tiles += tile_halves) {
    __m512i r[16];
    load_pairs(source, column, r);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tiles + 32 * i, r[i]);
  }
}

void pack_transposed(const Source& source, uint16_t* tiles) {
  for (int64_t column = 0; column < 32 * steps_of(source.columns); column += 16, tiles += tile_halves) {
    __m512i r[16];
    load_pairs(source, column, r);
    transpose(r);
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tiles + 32 * i, r[i]);
  }
}

void unpack_rows(const float* tiles, float factor, const Target& target) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t step = 0; step < steps_of(target.columns); ++step) {
    for (int64_t row = 0; row < target.rows; ++row) {
      const float* at = tiles + step * block_floats + row / 16 * 2 * tile_floats + row % 16 * 16;
      for (int64_t half = 0; half < 2; ++half) {
        store_16(target, row, 32 * step + 16 * half, _mm512_mul_ps(factors, _mm512_load_ps(at + half * tile_floats)));
      }
    }
  }
}

void unpack_transposed(const float* tiles, const float* factors, RowOrder order, const Target& target) {
  for (int64_t tile = 0; tile < 4 * steps_of(target.columns); ++tile, tiles += tile_floats) {
    const int64_t column = tile / 2 * 16, half = tile % 2;
    __m512i r[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tiles + 16 * i);
    transpose(r);
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t row = order == RowOrder::natural ? 16 * half + i : i / 4 * 8 + 4 * half + i % 4;
      store_16(target, row, column, _mm512_mul_ps(_mm512_set1_ps(factors[row]), _mm512_castsi512_ps(r[i])));
    }
  }
}

float row_norms(const Source& source, float* norms) {
  row_products(source, source, norms);
  __m512 most = _mm512_setzero_ps();
  for (int i = 0; i < 32; i += 16) {
    // Rounded up: the sum errs by less than 2^-16, and squares below 2^-126 counted as zero.
    const __m512 squares = _mm512_add_ps(_mm512_loadu_ps(norms + i), _mm512_set1_ps(0x1p-110f));
    const __m512 norm = _mm512_mul_ps(_mm512_sqrt_ps(squares), _mm512_set1_ps(1 + 0x1p-15f));
    _mm512_storeu_ps(norms + i, norm);
    most = _mm512_max_ps(norm, most);
    // max drops a NaN in its first operand: put it back, as infinity.
    most = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(norm, norm, _CMP_UNORD_Q), _mm512_set1_ps(HUGE_VALF));
  }
  return _mm512_reduce_max_ps(most);
}

void row_products(const Source& a, const Source& b, float* sums) {
  for (int64_t half = 0; half < 2; ++half) {
    __m512i r[16];
    for (int i = 0; i < 16; ++i) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t column = 0; column < a.columns; column += 32) {
        const auto left = (__m512bh)load_32(a, 16 * half + i, column);
        const auto right = (__m512bh)load_32(b, 16 * half + i, column);
        sum = _mm512_dpbf16_ps(sum, left, right);
      }
      r[i] = _mm512_castps_si512(sum);
    }
    transpose(r);
    __m512 sum = _mm512_setzero_ps();
    for (const __m512i& part : r) sum = _mm512_add_ps(sum, _mm512_castsi512_ps(part));
    _mm512_storeu_ps(sums + 16 * half, sum);
  }
}

float largest(const Source& source) {
  // Without their sign, the bits of finite values are ordered as the values are, and those of the others lie above.
  __m512i most = _mm512_setzero_si512();
  for (int64_t row = 0; row < source.rows; ++row) {
    for (int64_t column = 0; column < source.columns; column += 32) {
      most = _mm512_max_epu16(most, _mm512_and_si512(load_32(source, row, column), _mm512_set1_epi16(0x7fff)));
    }
  }
  const __m512i wide =
      _mm512_max_epu32(_mm512_slli_epi32(most, 16), _mm512_and_si512(most, _mm512_set1_epi32(~0xffff)));
  const uint32_t bits = _mm512_reduce_max_epu32(wide);
  constexpr uint32_t infinity = 0x7f800000;
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits < infinity ? bits : infinity))));
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
#endif
