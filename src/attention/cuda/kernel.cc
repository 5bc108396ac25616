// Attention on NVIDIA GPUs, as the rest of attention knows it.
#include "attention/kernel.h"

#include <string>

#include "attention/cuda/launches.h"
#include "attention/cuda/passes.h"
#include "core/cuda/stream.h"

namespace alibi::kernels {
namespace {

constexpr const char* operation = "attention on cuda";

class Gpu : public cuda::Machine {
 public:
  std::shared_ptr<void> workspace(size_t bytes) const override { return alibi::cuda::workspace(operation, bytes); }
  void copy_to_device(void* to, const void* from, size_t bytes) const override {
    alibi::cuda::copy_to_device(operation, to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) alibi::cuda::copy_to_host(operation, to, from, bytes);
  }
  void check_launch(const char* kernel, int error) const override {
    alibi::cuda::check_cuda((std::string(operation) + ", kernel " + kernel).c_str(), error);
  }
  const cuda::Launches& launches() const override {
    static constexpr cuda::Launches all = {
        .centres = cuda::launch_centres,
        .measure = cuda::launch_measure,
        .accumulate = cuda::launch_accumulate,
        .forward = cuda::launch_forward,
        .row_terms = cuda::launch_row_terms,
        .query_gradients = cuda::launch_query_gradients,
        .key_gradients = cuda::launch_key_gradients,
        .add_slopes = cuda::launch_add_slopes,
    };
    return all;
  }
  void* stream() const override { return alibi::stream(); }
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

}  // namespace alibi::kernels
