// Memory of devices other than the CPU. The table of attention kernels per device is in attention/kernel.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "alibi/tensor.h"

namespace alibi::core {

/// Interface of a device's memory.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  /// Like allocate() in core/memory.h.
  virtual std::shared_ptr<void> allocate(size_t bytes, bool zeros) const = 0;
  virtual void copy_from_cpu(void* to, const void* from, size_t bytes) const = 0;
  virtual void copy_to_cpu(void* to, const void* from, size_t bytes) const = 0;
  /// Like Tensor::fill() and Tensor::copy_from(), within the device's memory.
  virtual void fill(Tensor& tensor, float value) const = 0;
  virtual void copy(const Tensor& from, Tensor& to) const = 0;
  /// Later work in the stream `second` waits for the work queued in `first` so far.
  virtual void order(void* /*first*/, void* /*second*/) const {}
};

/// One entry per device, or null. The entry must stay valid while it is registered.
template <class T>
class PerDevice {
 public:
  PerDevice() = default;
  /// `cuda` is the entry of this build for CUDA.
  explicit PerDevice(const T* cuda) { set(Device::cuda, cuda); }

  /// Returns the previous entry.
  const T* set(Device device, const T* value) { return of_[static_cast<size_t>(device)].exchange(value); }
  const T* of(Device device) const { return of_[static_cast<size_t>(device)].load(); }

 private:
  std::array<std::atomic<const T*>, 2> of_{};  // Device::cuda is the last device
};

/// The memory of each device in this build. The CPU has no entry.
PerDevice<DeviceMemory>& device_memories();
/// CUDA's memory (core/cuda/), or null in a build without CUDA.
const DeviceMemory* cuda_memory();
/// Returns the memory of the device. Throws Error if this build does not support the device.
const DeviceMemory& device_memory(Device device);

}  // namespace alibi::core
