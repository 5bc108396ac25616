// Stubs for a build without CUDA.
#include "attention/kernel.h"

const alibi::kernels::Kernel& alibi::kernels::cuda_kernel() {
  static const Kernel none = {
      .supports = [](const Problem&) { return false; },
      .forward = [](const Problem&, AttentionState*) { return false; },
      .backward = [](const Problem&, const AttentionState&, const BiasSums&) { return false; },
  };
  return none;
}

const alibi::kernels::CacheKernel* alibi::kernels::cuda_cache_kernel() { return nullptr; }
