// For tests: a device in the CPU's memory that runs the sources of CUDA's kernels in emulated lanes. While one exists,
// it replaces CUDA for memory and for attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "core/device.h"

namespace alibi::test {

class EmulatedDevice {
 public:
  /// `backwards`: blocks and threads run from the last to the first.
  explicit EmulatedDevice(bool backwards = false);
  ~EmulatedDevice();
  /// What was queued in which stream, in order, and the properties that the device pretends to have.
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
