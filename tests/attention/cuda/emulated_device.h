// For tests: a device whose memory is the CPU's and whose kernels are the very sources of CUDA's in emulated lanes. It
// stands in CUDA's place while it lives, for memory and for attention.
#pragma once

#include <cstdint>

#include "attention/cached_bounds.h"
#include "attention/kernel.h"
#include "core/device.h"

namespace alibi::test {

class EmulatedDevice {
 public:
  /// `backwards`: blocks and threads get their turns from the last to the first.
  explicit EmulatedDevice(bool backwards = false);
  ~EmulatedDevice();
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

 private:
  const DeviceMemory* memory_before_;
  const kernels::Kernel* kernel_before_;
  const kernels::CacheKernel* cache_kernel_before_;
};

}  // namespace alibi::test
