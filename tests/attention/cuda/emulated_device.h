// For tests: a device whose memory is the CPU's and whose kernels are the very sources of CUDA's in emulated lanes. It
// stands in CUDA's place while it lives, for memory and for attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/cached_bounds.h"
#include "attention/kernel.h"
#include "core/device.h"

namespace alibi::test {

class EmulatedDevice {
 public:
  /// `backwards`: blocks and threads get their turns from the last to the first.
  explicit EmulatedDevice(bool backwards = false);
  ~EmulatedDevice();
  /// What was queued in which stream since it was made, in order, and what it pretends.
  struct Events {
    struct Event {
      std::string what;  ///< copy, to device, to host, free (of memory that this stream allocated), record or wait
      void* stream;
    };
    std::vector<Event> list;
    const void* elsewhere = nullptr;  ///< memory of another device
    int shared_bytes = 227 << 10;     ///< of a block of threads, as an H100 has
    bool capturing = false;           ///< every stream is being captured into a graph
    void note(const char* what, void* stream) { list.push_back({what, stream}); }
  };
  static Events& noted();
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

 private:
  const core::DeviceMemory* memory_before_;
  const kernels::Kernel* kernel_before_;
  const kernels::CacheKernel* cache_kernel_before_;
};

}  // namespace alibi::test
