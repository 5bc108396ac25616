// What a forward kernel leaves for its own backward pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "alibi/attention.h"
#include "attention/problem.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KernelState::State {
  /// Whose blocks these are; the number is part of what save() gives. Another kernel visits every block.
  enum class Kernel : int32_t { none, vector, amx, cuda };

  Kernel kernel = Kernel::none;
  Tensor lse;  ///< log-sum-exps with linear biases counted from the nearest key
  /// Key blocks [first, last) that each query block visited, numbered as the kernel does; empty: every block.
  std::vector<int32_t> first_block, last_block;
  /// [3, query blocks] int32 on a device: first and last block as above, in their place until they are asked for, and
  /// how many are seen.
  Tensor device_blocks;
  int64_t words = 0;  ///< of saved_blocks(), whatever kernel it was

  /// The fewest queries that any kernel may have in a block: it bounds the size of what is saved.
  static constexpr int64_t least_query_rows = 32;

  bool is_of(Kernel other) const { return kernel == other && !first_block.empty(); }
  /// The kernel will note what each of its query blocks visits; one that does not call this visits every block.
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
  /// What a kernel's forward pass visited of the key blocks that a query block sees.
  kernels::Range visited(Kernel by, int64_t query_block, const kernels::Range& seen) const {
    if (!is_of(by)) return seen;
    const auto at = static_cast<size_t>(query_block);
    const int64_t begin = std::clamp<int64_t>(first_block[at], seen.begin, seen.end);
    return {begin, std::clamp<int64_t>(last_block[at], begin, seen.end)};
  }
};

namespace kernels {

/// Of a forward call on a device, for which this waits.
AttentionStats count_device_blocks(const KernelState::State& state);

/// Throws Error if the state has blocks of this kernel, but not as many as the problem has query blocks: it is of
/// another forward call.
void check_blocks(const KernelState::State& state, KernelState::State::Kernel kernel, int64_t query_blocks);

}  // namespace kernels
}  // namespace alibi
