// Registers the kernels for NVIDIA GPUs as a Kernel and a CacheKernel.
#include "attention/kernel.h"

#include <string>

#include "attention/cuda/passes.h"
#include "core/cuda/stream.h"

namespace alibi::kernels {
namespace {

constexpr const char* operation = "attention on cuda";

class Gpu : public cuda::Machine {
 public:
  std::shared_ptr<void> workspace(size_t bytes) const override { return core::cuda::workspace(operation, bytes); }
  void copy_to_device(void* to, const void* from, size_t bytes) const override {
    core::cuda::copy_to_device(operation, to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) core::cuda::copy_to_host(operation, to, from, bytes);
  }
  void check_launch(const char* kernel, int error) const override {
    if (error != 0) core::cuda::check_cuda((std::string(operation) + ", kernel " + kernel).c_str(), error);
  }
  const cuda::Launches& launches(cuda::Form form) const override { return cuda::gpu_launches(form); }
  void* stream() const override { return alibi::stream(); }
  bool capturing() const override { return core::cuda::capturing(operation); }
  int shared_bytes() const override { return core::cuda::shared_bytes(operation); }
  int device() const override { return core::cuda::current_device(operation); }
  int device_of(const void* data) const override { return core::cuda::device_of(operation, data); }
};

const cuda::Machine& gpu() {
  static const auto* const one = new Gpu;  // never destroyed, because it may be used while the program exits
  return *one;
}

}  // namespace

const Kernel& cuda_kernel() {
  static constexpr Kernel kernel = {
      .supports = cuda::supports,
      .forward = [](const Problem& problem, AttentionState* state) { return cuda::forward(gpu(), problem, state); },
      .backward = [](const Problem& problem, const AttentionState& state,
                     const BiasSums& sums) { return cuda::backward(gpu(), problem, state, sums); },
      .refusal = cuda::refusal,
  };
  return kernel;
}

const CacheKernel* cuda_cache_kernel() {
  static constexpr CacheKernel kernel = {
      .note_keys = [](const Tensor& keys, int64_t begin,
                      const CachedBounds& bounds) { cuda::note_keys(gpu(), keys, begin, bounds); },
      .note_gates = [](int64_t begin, int64_t length,
                       const CachedBounds& bounds) { cuda::note_gates(gpu(), begin, length, bounds); },
      .decode = [](const Problem& problem, const CachedBounds& bounds,
                   AttentionState* state) { return cuda::decode(gpu(), problem, bounds, state); },
  };
  return &kernel;
}

}  // namespace alibi::kernels
