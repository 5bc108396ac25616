// Attention on NVIDIA GPUs, as the rest of attention knows it.
#include "attention/kernel.h"

#include <string>

#include "attention/cached_bounds.h"
#include "attention/cuda/launches.h"
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
    core::cuda::check_cuda((std::string(operation) + ", kernel " + kernel).c_str(), error);
  }
  const cuda::Launches& launches() const override {
    static constexpr cuda::Launches all = {
        .store = cuda::launch_store,
        .centres = cuda::launch_centres,
        .measure = cuda::launch_measure,
        .accumulate = cuda::launch_accumulate,
        .forward = cuda::launch_forward,
        .row_terms = cuda::launch_row_terms,
        .reaches = cuda::launch_reaches,
        .query_gradients = cuda::launch_query_gradients,
        .both_gradients = cuda::launch_both_gradients,
        .key_gradients = cuda::launch_key_gradients,
        .add_slopes = cuda::launch_add_slopes,
        .cached_centres = cuda::launch_cached_centres,
        .measure_cached = cuda::launch_measure_cached,
        .raise_nodes = cuda::launch_raise_nodes,
        .decode_near = cuda::launch_decode_near,
        .decode_splits = cuda::launch_decode_splits,
        .decode_merge = cuda::launch_decode_merge,
    };
    return all;
  }
  void* stream() const override { return alibi::stream(); }
  bool capturing() const override { return core::cuda::capturing(operation); }
  int shared_bytes() const override { return core::cuda::shared_bytes(operation); }
  int device() const override { return core::cuda::current_device(operation); }
  int device_of(const void* data) const override { return core::cuda::device_of(operation, data); }
};

const cuda::Machine& gpu() {
  static const auto* const one = new Gpu;  // for ever: it may be asked while the program ends
  return *one;
}

}  // namespace

const Kernel& cuda_kernel() {
  static constexpr Kernel kernel = {
      .supports = cuda::supports,
      .forward = [](const Problem& problem, AttentionState* state) { return cuda::forward(gpu(), problem, state); },
      .backward = [](const Problem& problem, const AttentionState& state,
                     const BiasSums& sums) { return cuda::backward(gpu(), problem, state, sums); },
  };
  return kernel;
}

const CacheKernel* cuda_cache_kernel() {
  static constexpr CacheKernel kernel = {
      .note_keys = [](const Tensor& keys, int64_t begin,
                      const CachedBounds& bounds) { cuda::note_keys(gpu(), keys, begin, bounds); },
      .decode = [](const Problem& problem, const CachedBounds& bounds,
                   AttentionState* state) { return cuda::decode(gpu(), problem, bounds, state); },
  };
  return &kernel;
}

}  // namespace alibi::kernels
