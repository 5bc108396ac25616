// A family of kernels as the rest of attention knows it. Decoding is not one of them: it works on a cache (decode/).
#pragma once

#include "attention/problem.h"
#include "core/device.h"

namespace alibi::kernels {

/// `forward` fills out and, unless state is null, lse and what its own backward pass wants to know again; the tensors
/// of the state are allocated by the caller. Both passes are asked only for problems that `supports` accepts, and
/// return false if they find values that they cannot keep apart, infinity or NaN: then the state is as it was, what
/// they wrote into tensors is void, and the next kernel computes the call.
struct Kernel {
  bool (*supports)(const Problem& problem);
  bool (*forward)(const Problem& problem, AttentionState* state);
  bool (*backward)(const Problem& problem, const AttentionState& state, const BiasSums& sums);
};

/// bfloat16 on machines with AMX.
const Kernel& amx_kernel();
/// Float32 arithmetic on any instruction set; computes every problem but those in float16.
const Kernel& vector_kernel();
/// bfloat16 and float16 on NVIDIA GPUs; in a build without CUDA it supports nothing.
const Kernel& cuda_kernel();
/// Each problem by the fastest of these that computes it.
const Kernel& cpu_kernel();

/// The kernels of devices other than the CPU, one for each that this build has. What they are given holds addresses of
/// the device: the tensors of the problem, of the sums and of the state. All else lies in the CPU's memory.
core::PerDevice<Kernel>& device_kernels();

}  // namespace alibi::kernels
