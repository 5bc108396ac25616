// Time that a call of attention on a GPU takes on the host, without a GPU: launches, copies and allocations of device
// memory do nothing. What a CUDA driver takes for them is not included. Prints microseconds, the least of 15 rounds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "alibi/attention.h"
#include "attention/cuda/passes.h"
#include "attention/kernel.h"
#include "core/device.h"

namespace alibi {
namespace {

int launches_so_far = 0;

template <class Arguments>
int launch(const Arguments& /*arguments*/, int64_t /*blocks*/, kernels::cuda::Type /*type*/, void* /*stream*/) {
  ++launches_so_far;
  return 0;
}

/// Memory that nobody reads: every allocation returns the same block.
std::shared_ptr<void> one_block(size_t bytes) {
  static std::shared_ptr<void> block;
  static size_t size = 0;
  if (bytes > size) block = {std::calloc(bytes, 1), [](void* data) { std::free(data); }}, size = bytes;
  return block;
}

class Memory : public core::DeviceMemory {
 public:
  std::shared_ptr<void> allocate(size_t bytes, bool /*zeros*/) const override { return one_block(bytes); }
  void copy_from_cpu(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
  void copy_to_cpu(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
  void fill(Tensor& /*tensor*/, float /*value*/) const override {}
  void copy(const Tensor& /*from*/, Tensor& /*to*/) const override {}
};

class Machine : public kernels::cuda::Machine {
 public:
  std::shared_ptr<void> workspace(size_t bytes) const override { return one_block(bytes); }
  void copy_to_device(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
  void copy_to_host(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}
  void check_launch(const char* /*kernel*/, int /*error*/) const override {}
  const kernels::cuda::Launches& launches(kernels::cuda::Form /*form*/) const override {
    static const kernels::cuda::Launches all = [] {
      kernels::cuda::Launches none = {};
      none.store = [](const kernels::cuda::StoreArguments&, void*) { return ++launches_so_far, 0; };
      none.centres = none.measure = none.accumulate = launch;
      none.forward = launch;
      none.row_terms = none.visiting_tiles = none.query_gradients = none.both_gradients = none.key_gradients =
          none.add_slopes = launch;
      return none;
    }();
    return all;
  }
  void* stream() const override { return nullptr; }
  bool capturing() const override { return false; }
  int shared_bytes() const override { return 227 << 10; }
  int device() const override { return 0; }
  int device_of(const void* /*data*/) const override { return 0; }
};

const Machine machine;

constexpr kernels::Kernel kernel = {
    .supports = kernels::cuda::supports,
    .forward = [](const kernels::Problem& problem,
                  AttentionState* state) { return kernels::cuda::forward(machine, problem, state); },
    .backward = [](const kernels::Problem& problem, const AttentionState& state,
                   const kernels::BiasSums& sums) { return kernels::cuda::backward(machine, problem, state, sums); },
};

struct Cost {
  double microseconds = 0;
  int launches = 0;
};

template <class Call>
Cost cost_of(const Call& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int rounds = 15, calls = 20;
  double least = 1e9;
  launches_so_far = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
  }
  return {least, launches_so_far / (rounds * calls)};
}

void run() {
  const Memory memory;
  core::device_memories().set(Device::cuda, &memory);
  kernels::device_kernels().set(Device::cuda, &kernel);
  fmt::print("{:>9} {:>8} {:>6} {:>12} {:>22} {:>12}\n", "head_dim", "length", "batch", "forward us", "with a state us",
             "backward us");
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t length : {2048, 16384, 65536}) {
      const int64_t batch = std::max<int64_t>(1, 16384 / length), heads = 2048 / head_dim;
      const Shape shape = {batch, length, heads, head_dim};
      const size_t bytes = static_cast<size_t>(batch * length) * 2048 * 2;
      one_block(bytes);                 // large enough for all
      const auto tensor = [&](int i) {  // never read
        return Tensor::view(reinterpret_cast<void*>((size_t{1} << 40) + static_cast<size_t>(i) * bytes), shape,
                            DType::bfloat16, {}, Device::cuda);
      };
      const Tensor q = tensor(1), k = tensor(2), v = tensor(3), dout = tensor(4);
      Tensor out = tensor(5), dq = tensor(6), dk = tensor(7), dv = tensor(8);
      const AttentionOptions options = {.alibi_slopes = slopes(heads), .tolerance = 0x1p-11f};
      AttentionState state;
      const Cost forward = cost_of([&] { attention(q, k, v, options, out); });
      const Cost with_state = cost_of([&] { attention(q, k, v, options, out, &state); });
      const Cost backward = cost_of([&] { attention_backward(dout, q, k, v, out, state, options, dq, dk, dv); });
      fmt::print("{:>9} {:>8} {:>6} {:>12.1f} {:>22.1f} {:>12.1f}   {} and {} launches\n", head_dim, length, batch,
                 forward.microseconds, with_state.microseconds, backward.microseconds, forward.launches,
                 backward.launches);
    }
  }
}

}  // namespace
}  // namespace alibi

int main() { alibi::run(); }
