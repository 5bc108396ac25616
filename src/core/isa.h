// The link between alibi::Isa and Highway's run-time dispatch.
//
// Kernels built with Highway are compiled for EMU128 (the scalar path), AVX2 and AVX3 on x86-64, and for NEON on ARM64
// (cmake/processor.cmake). Call `prepare_dispatch()` before HWY_DYNAMIC_DISPATCH: it makes Highway follow isa(), so
// that ALIBI_ISA and set_isa() hold for every kernel. Kernels that need more than AVX3 ask isa() themselves.
#pragma once

#include <optional>

#include "alibi/runtime.h"

namespace alibi::core {

/// The instruction set that the environment variable ALIBI_ISA names. It limits the whole process, including other
/// libraries. Throws Error if the name is invalid or the CPU does not support it.
std::optional<Isa> isa_limit();

/// Cheap after the first call.
void prepare_dispatch();

}  // namespace alibi::core
