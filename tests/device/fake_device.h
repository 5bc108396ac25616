// A device for tests, registered as CUDA. The program cannot read its memory (an access ends the program). Its
// attention is the CPU's, which sees the same bytes at another address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "attention/kernel.h"
#include "core/device.h"

namespace alibi::test {

class FakeDevice : public core::DeviceMemory {
 public:
  /// One lives at a time; it replaces what the build may have.
  FakeDevice();
  ~FakeDevice() override;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  /// Calls of attention that ran on it so far.
  static int64_t calls();
  /// Where the last call of attention was queued.
  static void* last_stream();

  std::shared_ptr<void> allocate(size_t bytes, bool zeros) const override;
  void copy_from_cpu(void* to, const void* from, size_t bytes) const override;
  void copy_to_cpu(void* to, const void* from, size_t bytes) const override;
  void fill(Tensor& tensor, float value) const override;
  void copy(const Tensor& from, Tensor& to) const override;

 private:
  const core::DeviceMemory* memory_before_;
  const kernels::Kernel* kernel_before_;
};

}  // namespace alibi::test
