#include "attention/cuda/emulated_device.h"

#include <cstring>
#include <limits>

#include "alibi/stream.h"
#include "attention/cuda/launches.h"
#include "attention/cuda/passes.h"
#include "core/check.h"
#include "core/memory.h"

namespace alibi::test {
namespace {

namespace cuda = kernels::cuda;

EmulatedDevice::Events events;

class Memory : public core::DeviceMemory {
 public:
  std::shared_ptr<void> allocate(size_t bytes, bool zeros) const override {
    auto memory = alibi::core::allocate(bytes, zeros);
    if (!zeros && bytes > 0) std::memset(memory.get(), 0xff, bytes);
    void* const data = memory.get();
    return {data, [memory = std::move(memory), queue = alibi::stream()](void*) { events.note("free", queue); }};
  }
  void order(void* first, void* second) const override {
    events.note("record", first);
    events.note("wait", second);
  }
  void copy_from_cpu(void* to, const void* from, size_t bytes) const override {
    events.note("to device", alibi::stream());
    std::memcpy(to, from, bytes);
  }
  void copy_to_cpu(void* to, const void* from, size_t bytes) const override {
    events.note("to host", alibi::stream());
    std::memcpy(to, from, bytes);
  }
  void fill(Tensor& tensor, float value) const override { seen(tensor).fill(value); }
  void copy(const Tensor& from, Tensor& to) const override {
    events.note("copy", alibi::stream());
    seen(to).copy_from(seen(from));
  }

 private:
  static Tensor seen(const Tensor& tensor) {
    return Tensor::view(tensor.raw(), tensor.shape(), tensor.dtype(), tensor.strides());
  }
};

class Machine : public cuda::Machine {
 public:
  std::shared_ptr<void> workspace(size_t bytes) const override { return Memory().allocate(bytes, false); }
  void copy_to_device(void* to, const void* from, size_t bytes) const override {
    events.note("to device", alibi::stream());
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) const override {
    events.note("to host", alibi::stream());
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void check_launch(const char* kernel, int error) const override { check(error == 0, "[emulated] {}", kernel); }
  const cuda::Launches& launches(cuda::Form form) const override {
    static const cuda::Launches of_slopes = cuda::launches_for<cuda::Form::slopes>(),
                                of_gates = cuda::launches_for<cuda::Form::gates>();
    return form == cuda::Form::gates ? of_gates : of_slopes;
  }
  void* stream() const override { return alibi::stream(); }
  bool capturing() const override { return events.capturing; }
  int shared_bytes() const override { return events.shared_bytes; }
  int device() const override { return 0; }
  int device_of(const void* data) const override { return data == events.elsewhere ? 1 : 0; }
};

const Memory memory;
const Machine machine;

constexpr kernels::Kernel kernel = {
    .supports = cuda::supports,
    .forward = [](const kernels::Problem& problem,
                  AttentionState* state) { return cuda::forward(machine, problem, state); },
    .backward = [](const kernels::Problem& problem, const AttentionState& state,
                   const kernels::BiasSums& sums) { return cuda::backward(machine, problem, state, sums); },
    .refusal = cuda::refusal,
};

constexpr kernels::CacheKernel cache_kernel = {
    .note_keys = [](const Tensor& keys, int64_t begin,
                    const kernels::CachedBounds& bounds) { cuda::note_keys(machine, keys, begin, bounds); },
    .note_gates = [](int64_t begin, int64_t length,
                     const kernels::CachedBounds& bounds) { cuda::note_gates(machine, begin, length, bounds); },
    .decode = [](const kernels::Problem& problem, const kernels::CachedBounds& bounds,
                 AttentionState* state) { return cuda::decode(machine, problem, bounds, state); },
};

}  // namespace

EmulatedDevice::EmulatedDevice(bool backwards)
    : memory_before_(core::device_memories().set(Device::cuda, &memory)),
      kernel_before_(kernels::device_kernels().set(Device::cuda, &kernel)),
      cache_kernel_before_(kernels::device_cache_kernels().set(Device::cuda, &cache_kernel)) {
  cuda::Block::here().backwards = backwards;
  events = {};
}

EmulatedDevice::Events& EmulatedDevice::noted() { return events; }

EmulatedDevice::~EmulatedDevice() {
  cuda::Block::here().backwards = false;
  core::device_memories().set(Device::cuda, memory_before_);
  kernels::device_kernels().set(Device::cuda, kernel_before_);
  kernels::device_cache_kernels().set(Device::cuda, cache_kernel_before_);
}

}  // namespace alibi::test
