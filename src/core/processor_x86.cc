#include "core/processor.h"
#include "core/system.h"
#include "hwy/targets.h"

namespace alibi::core {
namespace {

#if defined(ALIBI_EMULATE_AMX)
constexpr bool amx_emulated = true;  // see tests/attention/amx/emulated.h
#else
constexpr bool amx_emulated = false;
#endif
constexpr Isa all[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

/// CPUID leaf 7, for bits that __builtin_cpu_supports of older compilers does not know.
bool cpuid_7(uint32_t subleaf, char reg, int bit) {
  uint32_t a = 7, b = 0, c = subleaf, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const uint32_t word = reg == 'a' ? a : reg == 'b' ? b : reg == 'c' ? c : d;
  return (word >> bit & 1u) != 0;
}

}  // namespace

Isa processor::detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return Isa::avx2;
  if (amx_emulated) return Isa::amx;
  const bool avx512_bf16 = cpuid_7(1, 'a', 5), avx512_vbmi = cpuid_7(0, 'c', 1);
  if (!avx512_bf16 || !avx512_vbmi) return Isa::avx512;
  const bool amx_tile = cpuid_7(0, 'd', 24);
  const bool amx_bf16 = cpuid_7(0, 'd', 22);
  return amx_tile && amx_bf16 && system::request_amx() ? Isa::amx : Isa::avx512_bf16;
}

std::span<const Isa> processor::instruction_sets() { return all; }

int64_t processor::disabled_targets(Isa isa) {
  int64_t disabled = 0;
  // Highway gives better targets lower bits, and newer versions of Highway have more targets.
  if (isa < Isa::avx512_bf16) disabled |= HWY_AVX3_DL - 1;
  if (isa < Isa::avx512) disabled |= HWY_AVX2 - 1;
  if (isa < Isa::avx2) disabled |= HWY_AVX2 | HWY_SSE4 | HWY_SSSE3;
  return disabled;
}

void processor::pause() { __builtin_ia32_pause(); }

}  // namespace alibi::core
