#include "core/processor.h"

namespace alibi::core {
namespace {

/// Every ARM64 processor has NEON, so there is no scalar code for it.
constexpr Isa all[] = {Isa::neon};

}  // namespace

std::span<const Isa> processor::instruction_sets() { return all; }
Isa processor::detect() { return Isa::neon; }
int64_t processor::disabled_targets(Isa) { return 0; }
void processor::pause() { __asm__ volatile("yield"); }

}  // namespace alibi::core
