#include "core/isa.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/processor.h"
#include "core/system.h"
#include "hwy/targets.h"

namespace alibi {
namespace {

/// The instruction set of ALIBI_ISA, if it is set.
std::optional<Isa> read_limit() {
  const char* name = std::getenv("ALIBI_ISA");
  if (name == nullptr || *name == '\0') return {};
  std::string known;
  const auto isas = core::processor::instruction_sets();
  for (const Isa candidate : isas) {
    known += std::string(known.empty() ? "" : candidate == isas.back() ? " or " : ", ") + name_of(candidate);
    if (std::string(name_of(candidate)) != name) continue;
    static const Isa offered = core::processor::detect();
    check_usage(candidate <= offered,
                "[isa] the environment variable ALIBI_ISA is {}, expected at most {}, which is what this CPU supports; "
                "unset it to use that",
                name, name_of(offered));
    return candidate;
  }
  fail_usage("[isa] the environment variable ALIBI_ISA is '{}', expected {}; unset it to use the best of this CPU",
             name, known);
}

std::atomic<int> chosen_isa{-1};

}  // namespace

const char* name_of(Isa isa) {
  constexpr const char* names[] = {"scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx"};
  const auto index = static_cast<size_t>(isa);
  return index < std::size(names) ? names[index] : "?";
}

std::optional<Isa> core::isa_limit() {
  static const std::optional<Isa> limit = read_limit();
  return limit;
}

Isa best_isa() {
  static const Isa best = core::isa_limit().value_or(core::processor::detect());
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
  const std::vector<Isa> available = available_isas();
  check(std::find(available.begin(), available.end(), isa) != available.end(),
        "[isa] the requested instruction set is {}, but {} allows at most {}", name_of(isa),
        core::isa_limit() ? "ALIBI_ISA" : "this CPU", name_of(best_isa()));
  hwy::DisableTargets(core::processor::disabled_targets(isa));
  // Otherwise the first call of a kernel would do this, and meanwhile kernels of other threads might run with a
  // disabled target: SupportedTargets() briefly chooses among all.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  chosen_isa.store(static_cast<int>(isa));
}

std::vector<Isa> available_isas() {
  std::vector<Isa> result;
  for (const Isa candidate : core::processor::instruction_sets()) {
    if (candidate <= best_isa()) result.push_back(candidate);
  }
  return result;
}

void core::prepare_dispatch() { isa(); }

std::string cpu_name() {
#if defined(ALIBI_EMULATE_AMX)
  constexpr const char* emulated = " (AMX emulated)";
#else
  constexpr const char* emulated = "";
#endif
  const std::string name = core::system::cpu_name();
  return (name.empty() ? "unknown CPU" : name) + emulated;
}

}  // namespace alibi
