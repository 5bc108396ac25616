// Processors without AMX.
#include "attention/kernel.h"

namespace alibi::kernels {

const Kernel& amx_kernel() {
  static constexpr Kernel none = {
      .supports = [](const Problem&) { return false; }, .forward = nullptr, .backward = nullptr};
  return none;
}

}  // namespace alibi::kernels
