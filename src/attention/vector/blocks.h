// How the vector kernels cut attention: blocks of queries and keys, and tasks of query blocks for the threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/blocks.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"

namespace alibi::kernels {

/// Rows of a query block: three vectors of 16 lanes, six of 8 or twelve of 4. The same on every instruction set, so
/// that the key blocks a block visits are too.
inline constexpr int64_t query_rows = 48;
static_assert(query_rows >= KernelState::State::least_query_rows);
/// Rows of a key block.
inline constexpr int64_t key_rows = 64;

/// Up to query_rows queries of one head, and what they may see.
struct QueryBlock {
  int64_t head = 0;
  int64_t row = 0, rows = 0;  ///< within the sequence
  int64_t position = 0;       ///< of the first row
  HeadBias bias;
  int64_t keys = 0;      ///< of the sequence
  bool outside = false;  ///< linear biases of some row count distances from its nearest key
  Range seen;            ///< keys that causality, window and closed directions leave to any row
  Range key_blocks;      ///< the blocks that hold them

  /// Distance of row x's nearest key, which its linear bias counts from (Problem::nearest).
  int64_t nearest(int64_t x) const { return outside ? Problem::nearest(position + x, keys) : 0; }
};

QueryBlock query_block_at(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row);

/// Query blocks that one thread works through together, sharing each key block it loads: rows of heads that read the
/// same key/value head.
struct QueryTask {
  size_t sequence = 0;
  Range heads, rows;
  int64_t work = 0;
};

/// Cuts rows of all heads that read a key/value head for such tasks: visit(heads, rows).
template <class Visit>
void for_each_task(const Problem& problem, int64_t kv_head, const Range& rows, const Visit& visit) {
  constexpr int64_t blocks_together = 4;  // enough to pay for loading a key block
  constexpr int64_t heads_together = 8;
  const int64_t group_end = (kv_head + 1) * problem.group();
  for (int64_t head = kv_head * problem.group(); head < group_end; head += heads_together) {
    const Range heads = {head, std::min(head + heads_together, group_end)};
    const int64_t step = query_rows * std::max<int64_t>(1, blocks_together / heads.size());
    for (int64_t row = rows.begin; row < rows.end; row += step)
      visit(heads, Range{row, std::min(row + step, rows.end)});
  }
}

/// Every query in one task, the most work first.
std::vector<QueryTask> query_tasks(const Problem& problem);

}  // namespace alibi::kernels
