// Data that a forward kernel keeps for its own backward pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "alibi/attention.h"
#include "attention/problem.h"
#include "core/access.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KernelState::State {
  /// The kernel that wrote these blocks. Its number is part of saved_blocks(). Any other kernel visits every block.
  enum class Kernel : int32_t { none, vector, amx, cuda };

  Kernel kernel = Kernel::none;
  Tensor lse;  ///< log-sum-exps, with linear biases counted from the nearest key
  /// Key blocks [first, last) that each query block visited, numbered as in the kernel. Empty means that every block
  /// was visited.
  std::vector<int32_t> first_block, last_block;
  /// [3, query blocks] int32 on a device: first block, last block, and the number of blocks that are seen. Used instead
  /// of first_block and last_block until they are read.
  Tensor device_blocks;
  int64_t words = 0;  ///< number of words of saved_blocks(), with any kernel
  /// The caller's memory on a device (in_memory()), or undefined. It begins with the first and the last block of each
  /// query block.
  Tensor caller_blocks;

  /// No kernel has fewer queries in a block, so this bounds the size of the saved state.
  static constexpr int64_t min_query_rows = 32;

  bool is_of(Kernel other) const { return kernel == other && !first_block.empty(); }
  /// Call this in a kernel that records which key blocks its query blocks visit. Without it they visit every block.
  void begin(Kernel of, int64_t query_blocks) {
    kernel = of;
    first_block.assign(static_cast<size_t>(query_blocks), 0);
    last_block.assign(static_cast<size_t>(query_blocks), 0);
  }
  void note_visited(int64_t query_block, const kernels::Range& key_blocks) {
    if (first_block.empty()) return;
    first_block[static_cast<size_t>(query_block)] = static_cast<int32_t>(key_blocks.begin);
    last_block[static_cast<size_t>(query_block)] = static_cast<int32_t>(key_blocks.end);
  }
  /// The key blocks that the forward pass of kernel `by` visited, among those that a query block sees.
  kernels::Range visited(Kernel by, int64_t query_block, const kernels::Range& seen) const {
    if (!is_of(by)) return seen;
    const auto at = static_cast<size_t>(query_block);
    const int64_t begin = std::clamp<int64_t>(first_block[at], seen.begin, seen.end);
    return {begin, std::clamp<int64_t>(last_block[at], begin, seen.end)};
  }
};

namespace kernels {

/// The counts of a forward call on a device. Waits until the call has finished.
AttentionStats count_device_blocks(const core::StateOf<KernelState>& state);

/// The caller's memory as [2, query_blocks]. Throws Error if it is too small.
Tensor caller_blocks_of(const core::StateOf<KernelState>& state, int64_t query_blocks);

/// Throws Error if the state has blocks of this kernel whose number differs from the problem's query blocks, because it
/// then belongs to another forward call.
void check_blocks(const core::StateOf<KernelState>& state, core::StateOf<KernelState>::Kernel kernel,
                  int64_t query_blocks);

}  // namespace kernels
}  // namespace alibi
