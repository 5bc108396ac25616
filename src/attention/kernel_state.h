// What a forward kernel leaves for its own backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/attention.h"
#include "attention/problem.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KernelState::State {
  /// Whose blocks these are; the number is part of what save() gives. Another kernel visits every block.
  enum class Kernel : int32_t { none, vector, amx };

  Kernel kernel = Kernel::none;
  Tensor lse;  ///< log-sum-exps with linear biases counted from the nearest key
  /// Key blocks [first, last) that each query block visited, numbered as the kernel does; empty: every block.
  std::vector<int32_t> first_block, last_block;
  int64_t words = 0;  ///< of saved_blocks(), whatever kernel it was

  bool is_of(Kernel other) const { return kernel == other && !first_block.empty(); }
  void begin(Kernel of, int64_t query_blocks) {
    kernel = of;
    first_block.assign(static_cast<size_t>(query_blocks), 0);
    last_block.assign(static_cast<size_t>(query_blocks), 0);
  }
};

namespace kernels {

/// Throws Error if the state has blocks of this kernel, but not as many as the problem has query blocks: it is of
/// another forward call.
void check_blocks(const KernelState::State& state, KernelState::State::Kernel kernel, int64_t query_blocks);

}  // namespace kernels
}  // namespace alibi
