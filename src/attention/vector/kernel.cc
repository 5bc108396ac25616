// Float32 attention: divides the work of a call into tasks.
#include "attention/kernel.h"

#include <atomic>
#include <optional>

#include "attention/kernel_state.h"
#include "attention/key_part.h"
#include "attention/vector/tasks.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/pieces.h"

namespace alibi::kernels {
namespace {

/// Sets the bounds of all key blocks.
void measure(const Problem& problem, WeightBounds& bounds) {
  core::Pieces key_blocks(1);
  for (size_t s = 0; s < problem.sequences.size(); ++s) key_blocks.add(bounds.blocks().blocks(s));
  core::parallel_for(key_blocks.size(), [&](int64_t task) {
    const core::Piece block = key_blocks.at(task);
    for (int64_t head = 0; head < problem.kv_heads; ++head) {
      measure_keys(problem, block.array, head, block.begin, bounds);
    }
  });
  bounds.accumulate();
}

bool vector_forward(const Problem& problem, AttentionState* state) {
  std::optional<WeightBounds> own;
  if (skip_rule_applies(problem) && problem.part == nullptr) {
    own.emplace(problem, key_rows);
    measure(problem, *own);
  }
  const WeightBounds* const bounds = own ? &*own : problem.part != nullptr ? problem.part->bounds : nullptr;
  const BlockIndex index(problem, BlockIndex::Of::queries, query_rows);
  if (state != nullptr && bounds != nullptr)
    core::state_of(state->kernel).begin(core::StateOf<KernelState>::Kernel::vector, index.size());
  const std::vector<QueryTask> tasks = query_tasks(problem);
  std::atomic<int64_t> visited{0}, total{0};
  core::parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
    const AttentionStats stats = vector_forward_task(problem, tasks[static_cast<size_t>(task)], bounds, index, state);
    visited += stats.blocks_visited;
    total += stats.blocks_total;
  });
  if (state != nullptr) state->stats = {.blocks_visited = visited, .blocks_total = total};
  return true;
}

bool vector_backward(const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  const core::KeepMemory keep;  // the next chunk reuses the sums of a chunk
  const BlockIndex index(problem, BlockIndex::Of::queries, query_rows);
  check_blocks(core::state_of(state.kernel), core::StateOf<KernelState>::Kernel::vector, index.size());
  BiasGradients bias(problem, sums);
  std::vector<ChunkGroup> groups = chunk_groups(problem, state, index, bias);
  const auto tasks = chunk_tasks(groups);
  const auto write = [&](const ChunkGroup& group, int64_t key_block) {
    vector_write_key_gradients(problem, group.chunks, key_block);
  };
  const auto release = [&](ChunkGroup& group) {
    if (problem.dlog_decay != nullptr) add_gate_gradient(problem, group);
    for (Chunk& chunk : group.chunks) release_sums(chunk);
  };
  // If there are many groups, the thread that finishes the last chunk of a group writes its gradients, and the memory
  // of the group is reused. If there are few groups, all threads write their key blocks.
  constexpr size_t many = 8;
  std::vector<std::atomic<size_t>> ended(groups.size());
  const auto is_written_at_once = [&](const ChunkGroup& group) {
    return groups.size() >= many || group.chunks.size() == 1;
  };
  core::parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
    const auto [group, chunk] = tasks[static_cast<size_t>(task)];
    vector_backward_chunk(problem, state, index, *chunk);
    const bool last = ++ended[static_cast<size_t>(group - groups.data())] == group->chunks.size();
    if (!last || !is_written_at_once(*group)) return;
    for (int64_t key_block = 0; key_block < group->key_blocks; ++key_block) write(*group, key_block);
    release(*group);
  });
  for (ChunkGroup& group : groups) {
    if (is_written_at_once(group)) continue;
    core::parallel_for(group.key_blocks, [&](int64_t key_block) { write(group, key_block); });
    release(group);
  }
  for (const ChunkGroup& group : groups) {
    for (const Chunk& chunk : group.chunks) bias.add(chunk.sequence, chunk.kv_head, chunk.bias);
  }
  bias.finish();
  return true;
}

}  // namespace

const Kernel& vector_kernel() {
  static constexpr PartSupport parts = {
      .query_rows = query_rows, .key_rows = key_rows, .blocks_at_once = 1, .key_maxima = [](const Problem&) {
        return std::vector<float>();
      }};
  static constexpr Kernel kernel = {.supports = [](const Problem&) { return true; },
                                    .forward = vector_forward,
                                    .backward = vector_backward,
                                    .parts = &parts};
  return kernel;
}

}  // namespace alibi::kernels
