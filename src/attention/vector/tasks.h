// How the vector kernels divide attention: blocks of queries and keys, and tasks of query blocks for the threads. The
// backward pass uses chunks of queries, each with its own sums for its keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/bias_gradient.h"
#include "attention/blocks.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"
#include "attention/skip/weights.h"

namespace alibi::kernels {

/// Rows of a query block: three vectors of 16 lanes, six of 8 or twelve of 4. It is the same on every instruction set,
/// so that a block visits the same key blocks on all of them.
inline constexpr int64_t query_rows = 48;
static_assert(query_rows >= core::StateOf<KernelState>::min_query_rows);
/// Rows of a key block.
inline constexpr int64_t key_rows = 64;

/// Up to query_rows queries of one head, and the keys that they may see.
struct QueryBlock {
  int64_t head = 0;
  int64_t row = 0, rows = 0;  ///< within the sequence
  int64_t position = 0;       ///< position of the first row
  HeadBias bias;
  int64_t keys = 0;      ///< number of keys of the sequence
  bool outside = false;  ///< whether some row has no key at its position, and its bias is counted from its nearest key
  Range seen;            ///< keys that at least one row sees, given causality, window and closed directions
  Range key_blocks;      ///< the key blocks that contain them

  /// Distance of row x's nearest key, from which its bias is counted (Problem::nearest).
  int64_t nearest(int64_t x) const { return outside ? Problem::nearest(position + x, keys) : 0; }
};

QueryBlock query_block_at(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row);

/// Query blocks that one thread computes together, so that they share each key block that it loads: rows of heads that
/// read the same key/value head.
struct QueryTask {
  size_t sequence = 0;
  Range heads, rows;
  int64_t work = 0;
};

/// Divides rows of all heads that read a key/value head into such tasks by calls of visit(heads, rows).
template <class Visit>
void for_each_task(const Problem& problem, int64_t kv_head, const Range& rows, const Visit& visit) {
  constexpr int64_t blocks_together = 4;  // enough that loading a key block costs little
  constexpr int64_t heads_together = 8;
  const int64_t group_end = (kv_head + 1) * problem.group();
  for (int64_t head = kv_head * problem.group(); head < group_end; head += heads_together) {
    const Range heads = {head, std::min(head + heads_together, group_end)};
    const int64_t step = query_rows * std::max<int64_t>(1, blocks_together / heads.size());
    for (int64_t row = rows.begin; row < rows.end; row += step)
      visit(heads, Range{row, std::min(row + step, rows.end)});
  }
}

/// Tasks for all queries, by decreasing work.
std::vector<QueryTask> query_tasks(const Problem& problem);

/// Some rows of all heads that read a key/value head, and their share of its gradients.
struct Chunk {
  size_t sequence = 0;
  int64_t kv_head = 0;
  Range rows;
  Range key_blocks;  ///< visited by at least one of the rows
  int64_t work = 0;
  std::shared_ptr<float> dk, dv;   ///< [key_blocks * key_rows][head_dim rounded up to 16]
  std::vector<BiasGradient> bias;  ///< one for each head of the group; empty if the caller does not want the gradient
  /// [heads of the group][key_blocks * key_rows]: of the gradients of the scores, the sum of a key's own row less that
  /// of its column; empty if the caller does not want the gradient of the gates.
  std::vector<double> gates;
};

/// The chunks of one key/value head of one sequence.
struct ChunkGroup {
  std::vector<Chunk> chunks;
  int64_t key_blocks = 0;
  int64_t work = 0;
};

/// Key blocks that the forward pass visited for a query block. With coordinates, some of them were not visited.
Range visited_key_blocks(const AttentionState& state, const BlockIndex& index, size_t sequence,
                         const QueryBlock& block);

std::vector<ChunkGroup> chunk_groups(const Problem& problem, const AttentionState& state, const BlockIndex& index,
                                     const BiasGradients& bias);

/// All chunks, group after group, so that only few groups need memory for sums at a time. Groups, and the chunks of a
/// group, are ordered by decreasing work.
std::vector<std::pair<ChunkGroup*, Chunk*>> chunk_tasks(std::vector<ChunkGroup>& groups);

void allocate_sums(const Problem& problem, Chunk& chunk);
void release_sums(Chunk& chunk);
/// Adds the gradient of a group's gates to Problem::dlog_decay, from the sums of its chunks in order.
void add_gate_gradient(const Problem& problem, const ChunkGroup& group);

// The tasks, each compiled for every instruction set.

/// Attention of a task's queries. `bounds` is null if the skip rule does not apply.
AttentionStats vector_forward_task(const Problem& problem, const QueryTask& task, const WeightBounds* bounds,
                                   const BlockIndex& index, AttentionState* state);

/// dq of a chunk's queries, and its sums for dk, dv and the bias.
void vector_backward_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, Chunk& chunk);

/// Writes dk and dv of one key block: the sums of a group's chunks, added in order.
void vector_write_key_gradients(const Problem& problem, const std::vector<Chunk>& chunks, int64_t key_block);

}  // namespace alibi::kernels
