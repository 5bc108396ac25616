#include "attention/amx/pack.h"

#include <cmath>

#include "attention/amx/tiles.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {
namespace {

/// Mask of the `wide` columns from `column` on that exist in a row.
ALIBI_AMX_INLINE uint32_t lanes(int64_t columns, int64_t column, int wide) {
  const int64_t left = columns - column;
  if (left <= 0) return 0;
  return left >= 32 ? (wide == 32 ? 0xffffffffu : 0xffffu) : _bzhi_u32(wide == 32 ? 0xffffffffu : 0xffffu, left);
}

/// Whether the source fills its tiles, so that nothing has to be masked.
ALIBI_AMX_INLINE bool whole(const Source& source) { return source.rows == 32 && source.columns % 32 == 0; }

/// 32 columns of a row, with zeros beyond the source.
template <bool is_whole>
ALIBI_AMX_INLINE __m512i load_32(const Source& source, int64_t row, int64_t column) {
  const uint16_t* at = source.data + row * source.stride + column;
  if (is_whole) return _mm512_loadu_si512(at);
  if (row >= source.rows) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(lanes(source.columns, column, 32), at);
}

/// The pairs of rows (2 i, 2 i + 1) of 16 columns each: `low` starts at `column`, `high` 16 columns later.
template <bool is_whole>
ALIBI_AMX_INLINE void load_pairs(const Source& source, int64_t column, __m512i* low, __m512i* high) {
  alignas(64) static constexpr uint16_t order[64] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                     8,  40, 9,  41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,
                                                     16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i low_order = _mm512_load_si512(order), high_order = _mm512_load_si512(order + 32);
  for (int i = 0; i < 16; ++i) {
    const __m512i even = load_32<is_whole>(source, 2 * i, column), odd = load_32<is_whole>(source, 2 * i + 1, column);
    low[i] = _mm512_permutex2var_epi16(even, low_order, odd);
    high[i] = _mm512_permutex2var_epi16(even, high_order, odd);
  }
}

ALIBI_AMX_INLINE void store_tile_rows(const __m512i* rows, uint16_t* tile) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + 32 * i, rows[i]);
}

template <bool is_whole>
void pack_rows_of(const Source& source, uint16_t* tiles) {
  for (int64_t column = 0; column < source.columns; column += 32, tiles += block_halves) {
    for (int64_t row = 0; row < 32; ++row) {
      _mm512_store_si512(tiles + row * 32, load_32<is_whole>(source, row, column));
    }
  }
}

template <bool is_whole>
void pack_columns_of(const Source& source, uint16_t* tiles) {
  for (int64_t column = 0; column < source.columns; column += 32) {
    for (int64_t half = 0; half < 2; ++half, tiles += tile_halves) {
      __m512i r[16];
      for (int i = 0; i < 16; ++i) r[i] = load_32<is_whole>(source, 16 * half + i, column);
      transpose(r);
      store_tile_rows(r, tiles);
    }
  }
}

template <bool is_whole, bool transposed>
void pack_pairs_of(const Source& source, uint16_t* tiles, int64_t stride) {
  for (int64_t column = 0; column < source.columns; column += 32, tiles += stride) {
    __m512i low[16], high[16];
    load_pairs<is_whole>(source, column, low, high);
    if (transposed) {
      transpose(low);
      transpose(high);
    }
    store_tile_rows(low, tiles);
    store_tile_rows(high, tiles + tile_halves);
  }
}

/// Sums of products, row by row.
template <bool is_whole>
void row_products_of(const Source& a, const Source& b, float* sums) {
  for (int64_t half = 0; half < 2; ++half) {
    __m512i r[16];
    for (int i = 0; i < 16; ++i) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t column = 0; column < a.columns; column += 32) {
        const __m512i left = load_32<is_whole>(a, 16 * half + i, column);
        const __m512i right = load_32<is_whole>(b, 16 * half + i, column);
        sum = add_pair_products(sum, left, right);
      }
      r[i] = _mm512_castps_si512(sum);
    }
    transpose(r);
    for (int i = 8; i > 0; i /= 2) {
      for (int j = 0; j < i; ++j) {
        r[j] = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(r[j]), _mm512_castsi512_ps(r[j + i])));
      }
    }
    _mm512_storeu_ps(sums + 16 * half, _mm512_castsi512_ps(r[0]));
  }
}

ALIBI_AMX_INLINE void store_16(const Target& target, int64_t row, int64_t column, __m512 values) {
  if (row >= target.rows) return;
  uint16_t* at = target.data + row * target.stride + column;
  if (column + 16 <= target.columns) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), to_bfloat16(values));
  } else {
    _mm256_mask_storeu_epi16(at, static_cast<__mmask16>(lanes(target.columns, column, 16)), to_bfloat16(values));
  }
}

constexpr int64_t line_halves = 32;  // bfloat16 values per cache line

}  // namespace

void prefetch(const Source& source) {
  for (int64_t row = 0; row < source.rows; ++row) {
    for (int64_t column = 0; column < source.columns; column += line_halves) {
      __builtin_prefetch(source.data + row * source.stride + column);
    }
  }
}

void prefetch(const Target& target) {
  for (int64_t row = 0; row < target.rows; ++row) {
    for (int64_t column = 0; column < target.columns; column += line_halves) {
      __builtin_prefetch(target.data + row * target.stride + column, 1);
    }
  }
}

void pack_rows(const Source& source, uint16_t* tiles) {
  whole(source) ? pack_rows_of<true>(source, tiles) : pack_rows_of<false>(source, tiles);
}
void pack_columns(const Source& source, uint16_t* tiles) {
  whole(source) ? pack_columns_of<true>(source, tiles) : pack_columns_of<false>(source, tiles);
}
void pack_pairs(const Source& source, uint16_t* tiles) {
  whole(source) ? pack_pairs_of<true, false>(source, tiles, block_halves)
                : pack_pairs_of<false, false>(source, tiles, block_halves);
}
void pack_transposed(const Source& source, uint16_t* tiles, int64_t stride) {
  whole(source) ? pack_pairs_of<true, true>(source, tiles, stride) : pack_pairs_of<false, true>(source, tiles, stride);
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
    // Rounded up: the relative error of the sum is below 2^-16, and squares below 2^-126 were flushed to zero.
    const __m512 squares = _mm512_add_ps(_mm512_loadu_ps(norms + i), _mm512_set1_ps(0x1p-110f));
    const __m512 norm = _mm512_mul_ps(_mm512_sqrt_ps(squares), _mm512_set1_ps(1 + 0x1p-15f));
    _mm512_storeu_ps(norms + i, norm);
    most = _mm512_max_ps(norm, most);
    // max drops a NaN in its first operand, so a NaN is replaced by infinity here.
    most = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(norm, norm, _CMP_UNORD_Q), _mm512_set1_ps(HUGE_VALF));
  }
  return _mm512_reduce_max_ps(most);
}

void row_products(const Source& a, const Source& b, float* sums) {
  whole(a) ? row_products_of<true>(a, b, sums) : row_products_of<false>(a, b, sums);
}

template <bool is_whole>
static __m512i largest_of(const Source& source) {
  // Without the sign bit, the bits of finite values are ordered like the values. Infinity and NaN are larger.
  __m512i most = _mm512_setzero_si512();
  for (int64_t row = 0; row < source.rows; ++row) {
    for (int64_t column = 0; column < source.columns; column += 32) {
      const __m512i values = load_32<is_whole>(source, row, column);
      most = _mm512_max_epu16(most, _mm512_and_si512(values, _mm512_set1_epi16(0x7fff)));
    }
  }
  return most;
}

float largest(const Source& source) {
  const __m512i most = whole(source) ? largest_of<true>(source) : largest_of<false>(source);
  const __m512i wide =
      _mm512_max_epu32(_mm512_slli_epi32(most, 16), _mm512_and_si512(most, _mm512_set1_epi32(~0xffff)));
  const uint32_t bits = _mm512_reduce_max_epu32(wide);
  constexpr uint32_t infinity = 0x7f800000;
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits < infinity ? bits : infinity))));
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
