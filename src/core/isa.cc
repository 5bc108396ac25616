#include "core/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

#include "core/check.h"
#include "hwy/targets.h"

namespace alibi {
namespace {

#if defined(ALIBI_EMULATE_AMX)
constexpr bool amx_emulated = true;  // see attention/amx_emulated.h
#else
constexpr bool amx_emulated = false;
#endif
constexpr Isa all_isas[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

#if defined(__x86_64__)
/// Linux gives the AMX tile registers only to processes that request them.
bool amx_allowed() {
  constexpr long arch_req_xcomp_perm = 0x1023;
  constexpr long xfeature_xtiledata = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}

/// CPUID leaf 7, for bits that __builtin_cpu_supports of older compilers does not know.
bool cpuid_7(uint32_t subleaf, char reg, int bit) {
  uint32_t a = 7, b = 0, c = subleaf, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const uint32_t word = reg == 'a' ? a : reg == 'b' ? b : reg == 'c' ? c : d;
  return (word >> bit & 1u) != 0;
}

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return Isa::avx2;
  if (amx_emulated) return Isa::amx;
  if (!cpuid_7(1, 'a', 5)) return Isa::avx512;
  const bool amx_tile = cpuid_7(0, 'd', 24);
  const bool amx_bf16 = cpuid_7(0, 'd', 22);
  return amx_tile && amx_bf16 && amx_allowed() ? Isa::amx : Isa::avx512_bf16;
}
#else
Isa detect() { return Isa::scalar; }
#endif

/// The instruction set of ALIBI_ISA, if it is set.
std::optional<Isa> read_limit() {
  const char* name = std::getenv("ALIBI_ISA");
  if (name == nullptr || *name == '\0') return {};
  for (const Isa candidate : all_isas) {
    if (std::string(name_of(candidate)) != name) continue;
    static const Isa offered = detect();
    check_usage(candidate <= offered, "[isa] ALIBI_ISA is {}, expected at most {}, which is what this CPU supports",
                name, name_of(offered));
    return candidate;
  }
  fail_usage("[isa] ALIBI_ISA is '{}', expected scalar, avx2, avx512, avx512_bf16 or amx", name);
}

std::atomic<int> chosen_isa{-1};

void follow(Isa chosen) {
  int64_t disabled = 0;
#if defined(__x86_64__)
  // Highway gives better targets lower bits, and newer versions of Highway have more targets.
  if (chosen < Isa::avx512_bf16) disabled |= HWY_AVX3_DL - 1;
  if (chosen < Isa::avx512) disabled |= HWY_AVX2 - 1;
  if (chosen < Isa::avx2) disabled |= HWY_AVX2 | HWY_SSE4 | HWY_SSSE3;
#endif
  hwy::DisableTargets(disabled);
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

std::optional<Isa> core::isa_limit() {
  static const std::optional<Isa> limit = read_limit();
  return limit;
}

Isa best_isa() {
  static const Isa best = core::isa_limit().value_or(detect());
  return best;
}

Isa isa() {
  const int chosen = chosen_isa.load();
  if (chosen >= 0) return static_cast<Isa>(chosen);
  static std::once_flag first_use;  // the first thread sets it
  std::call_once(first_use, [] {
    if (chosen_isa.load() < 0) set_isa(best_isa());
  });
  return static_cast<Isa>(chosen_isa.load());
}

void set_isa(Isa isa) {
  check(isa <= best_isa(), "[isa] the requested instruction set is {}, but {} allows at most {}", name_of(isa),
        core::isa_limit() ? "ALIBI_ISA" : "this CPU", name_of(best_isa()));
  follow(isa);
  chosen_isa.store(static_cast<int>(isa));
}

std::vector<Isa> available_isas() {
  std::vector<Isa> result;
  for (const Isa candidate : all_isas) {
    if (candidate <= best_isa()) result.push_back(candidate);
  }
  return result;
}

void core::prepare_dispatch() { isa(); }

std::string cpu_name() {
  const std::string emulated = amx_emulated ? " (AMX emulated)" : "";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return line.substr(line.find_first_not_of(' ', colon + 1)) + emulated;
  }
  return "unknown CPU" + emulated;
}

}  // namespace alibi
