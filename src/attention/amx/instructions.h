// The instructions that only CPUs with AMX, or with AVX512-BF16 and AVX512-VBMI, have. Code between ALIBI_AMX_BEGIN and
// ALIBI_AMX_END is compiled for such CPUs. The build option ALIBI_EMULATE_AMX replaces the instructions by AVX-512
// code, so that the kernels can be tested on machines without AMX and by sanitizers, which do not see the memory
// accesses of the real instructions.
#pragma once

// g++ 12 warns about undefined operands in its own header (GCC bug 105593).
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

#define ALIBI_AVX512_TARGETS "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512cd,bmi,bmi2,lzcnt,popcnt"
#if defined(ALIBI_EMULATE_AMX)
#define ALIBI_AMX_TARGETS ALIBI_AVX512_TARGETS
#else
#define ALIBI_AMX_TARGETS ALIBI_AVX512_TARGETS ",avx512bf16,avx512vbmi,amx-tile,amx-bf16"
#endif
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
#define ALIBI_AMX_METHOD __attribute__((always_inline))
#define ALIBI_AMX_INLINE static inline ALIBI_AMX_METHOD

#if defined(ALIBI_EMULATE_AMX)
#include "attention/amx/emulated.h"
#else
ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

/// While an object of this class exists, its thread may use all eight tile registers at full size.
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

/// `stride` is in bytes. A stride of 0 repeats one row.
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

/// sum + a b, where each lane adds the products of two neighbouring elements.
ALIBI_AMX_INLINE __m512 add_pair_products(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
/// For each 16-bit index, the number of the table's 64 bytes that its lowest six bits name.
ALIBI_AMX_INLINE __m512i look_up(__m512i table, __m512i indices) {
  return _mm512_maskz_permutexvar_epi8(0x5555555555555555, indices, table);
}
/// Rounds to bfloat16, to nearest even.
ALIBI_AMX_INLINE __m256i to_bfloat16(__m512 values) { return (__m256i)_mm512_cvtneps_pbh(values); }
ALIBI_AMX_INLINE __m512i to_bfloat16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
#endif
