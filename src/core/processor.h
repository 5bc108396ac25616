// What only one kind of processor has: processor_x86.cc, or processor_arm.cc for all others.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/runtime.h"

namespace alibi::core::processor {

/// The instruction sets of this kind of processor that kernels are written for, in rising order.
std::span<const Isa> instruction_sets();
/// The best one that this processor and operating system have.
Isa detect();
/// The targets of Highway that kernels limited to this instruction set must not use.
int64_t disabled_targets(Isa isa);
/// Tells the processor that the thread waits for another one.
void pause();

}  // namespace alibi::core::processor
