// Memory of devices other than the CPU. Each room above keeps a table of what such a device computes: nn/operators.h
// and attention/kernel.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "alibi/tensor.h"

namespace alibi::core {

/// What a device must do for tensors to live in its memory.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  /// As allocate() of core/memory.h.
  virtual std::shared_ptr<void> allocate(size_t bytes, bool zeros) const = 0;
  virtual void copy_from_cpu(void* to, const void* from, size_t bytes) const = 0;
  virtual void copy_to_cpu(void* to, const void* from, size_t bytes) const = 0;
  /// As Tensor::fill() and Tensor::copy_from(), within its memory.
  virtual void fill(Tensor& tensor, float value) const = 0;
  virtual void copy(const Tensor& from, Tensor& to) const = 0;
  /// What is queued in the stream `second` from now on waits for what is queued in `first` so far.
  virtual void order(void* /*first*/, void* /*second*/) const {}
};

/// For each device something that lives as long as it is registered, or null.
template <class T>
class PerDevice {
 public:
  PerDevice() = default;
  /// What the build has for CUDA.
  explicit PerDevice(const T* cuda) { set(Device::cuda, cuda); }

  /// Gives what was there before.
  const T* set(Device device, const T* value) { return of_[static_cast<size_t>(device)].exchange(value); }
  const T* of(Device device) const { return of_[static_cast<size_t>(device)].load(); }

 private:
  std::array<std::atomic<const T*>, 2> of_{};  // Device::cuda is the last
};

/// Of this build; there is none for the CPU.
PerDevice<DeviceMemory>& device_memories();
/// CUDA's (core/cuda/); null in a build without.
const DeviceMemory* cuda_memory();
/// Throws Error if this build lacks the device.
const DeviceMemory& device_memory(Device device);

/// Throws Error if they lie on different devices.
void check_same_device(const char* operation, const Tensor& a, const Tensor& b);

}  // namespace alibi::core
