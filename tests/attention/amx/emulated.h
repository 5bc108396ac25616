// The instructions of instructions.h in AVX-512, for tests; included by it alone. Sums are rounded after each
// product as the tile instruction does (Intel's Architecture Instruction Set Extensions Reference, TDPBF16PS), but in
// another order, and denormals are kept.
#pragma once

#include <cstdint>

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

inline constexpr int emulated_tiles = 8, emulated_rows = 16;
struct EmulatedTiles {
  alignas(64) uint32_t rows[emulated_tiles][emulated_rows][16];
  bool configured = false;
};
inline thread_local EmulatedTiles emulated;

/// While it lives, this thread's tile registers are in use; outside they are unusable, as the real ones are.
class TileScope {
 public:
  TileScope() { emulated = {.rows = {}, .configured = true}; }
  ~TileScope() { emulated.configured = false; }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int tile>
ALIBI_AMX_INLINE uint32_t (&emulated_tile())[emulated_rows][16] {
  static_assert(tile >= 0 && tile < emulated_tiles);
  if (!emulated.configured) __builtin_trap();
  return emulated.rows[tile];
}

/// `stride` in bytes; 0 repeats one row.
template <int tile>
ALIBI_AMX_INLINE void load_tile(const void* data, int64_t stride = 64) {
  auto& rows = emulated_tile<tile>();
  for (int64_t r = 0; r < emulated_rows; ++r) {
    _mm512_store_si512(rows[r], _mm512_loadu_si512(static_cast<const char*>(data) + r * stride));
  }
}
template <int tile>
ALIBI_AMX_INLINE void store_tile(void* data) {
  auto& rows = emulated_tile<tile>();
  for (int64_t r = 0; r < emulated_rows; ++r) {
    _mm512_storeu_si512(static_cast<char*>(data) + r * 64, _mm512_load_si512(rows[r]));
  }
}
template <int tile>
ALIBI_AMX_INLINE void zero_tile() {
  for (auto& row : emulated_tile<tile>()) _mm512_store_si512(row, _mm512_setzero_si512());
}

/// sum + a b: each lane adds the products of two neighbours.
ALIBI_AMX_INLINE __m512 add_pair_products(__m512 sum, __m512i a, __m512i b) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)),
                        sum);
  return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)), _mm512_castsi512_ps(_mm512_and_si512(b, high)),
                         sum);
}

/// c += a b
template <int c, int a, int b>
ALIBI_AMX_INLINE void multiply_tiles() {
  auto& left = emulated_tile<a>();
  auto& right = emulated_tile<b>();
  for (int m = 0; m < emulated_rows; ++m) {
    __m512 sum = _mm512_load_ps(emulated_tile<c>()[m]);
    for (int k = 0; k < emulated_rows; ++k) {
      sum = add_pair_products(sum, _mm512_set1_epi32(static_cast<int>(left[m][k])), _mm512_load_si512(right[k]));
    }
    _mm512_store_ps(emulated_tile<c>()[m], sum);
  }
}

/// For each 16-bit index, the number of the table's 64 bytes that its lowest six bits name.
ALIBI_AMX_INLINE __m512i look_up(__m512i table, __m512i indices) {
  alignas(64) uint8_t numbers[64];
  alignas(64) uint16_t words[32];
  _mm512_store_si512(numbers, table);
  _mm512_store_si512(words, indices);
  for (uint16_t& word : words) word = numbers[word % 64];
  return _mm512_load_si512(words);
}

/// To bfloat16, to nearest even.
ALIBI_AMX_INLINE __m256i to_bfloat16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(nearest, nan, quiet), 16));
}
ALIBI_AMX_INLINE __m512i to_bfloat16(__m512 low, __m512 high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(to_bfloat16(low)), to_bfloat16(high), 1);
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
