// Attention with given positions: divides the work of a call into tasks.
#include <algorithm>
#include <atomic>
#include <optional>

#include "attention/skip/norms.h"
#include "attention/spatial/spatial.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

std::vector<SpatialTask> spatial_tasks(const SpatialProblem& problem) {
  const Problem& base = problem.base;
  std::vector<SpatialTask> tasks;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const TokenOrder& queries = *problem.sequences[s].queries;
    for (int64_t kv_head = 0; kv_head < base.kv_heads; ++kv_head) {
      for_each_spatial_task(base, queries, kv_head, {0, queries.size()}, [&](const Range& heads, const Range& blocks) {
        // How many keys a task visits depends on their density. A small slope visits more.
        const double slope = base.tolerance > 0 ? problem.slope(s, heads.begin, blocks.begin) : 0;
        const auto blocks_of_task =
            static_cast<double>(problem.sequences[s].keys->size() * heads.size() * blocks.size());
        tasks.push_back({s, heads, blocks, static_cast<int64_t>(blocks_of_task / (1 + 64 * std::min(slope, 1e6)))});
      });
    }
  }
  most_work_first(tasks, &SpatialTask::work);
  return tasks;
}

/// The chunks of one key/value head of one sequence.
struct SpatialChunkGroup {
  std::vector<SpatialChunk> chunks;
  int64_t key_blocks = 0;
};

std::vector<SpatialChunkGroup> spatial_chunks(const SpatialProblem& problem, bool want_dslopes) {
  // Constants, because the results depend on the division.
  constexpr int64_t chunks_of_all = 64, least_blocks = 16, grain = 4;
  const Problem& base = problem.base;
  const int64_t groups = static_cast<int64_t>(problem.sequences.size()) * base.kv_heads;
  std::vector<SpatialChunkGroup> result;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const int64_t blocks = problem.sequences[s].queries->size();
    const int64_t wanted =
        std::clamp<int64_t>(core::ceil_div(chunks_of_all, groups), 1, core::ceil_div(blocks, least_blocks) + 1);
    const int64_t step = std::max<int64_t>(round_up(core::ceil_div(blocks, wanted), grain), grain);
    for (int64_t kv_head = 0; kv_head < base.kv_heads; ++kv_head) {
      SpatialChunkGroup& group = result.emplace_back();
      group.key_blocks = problem.sequences[s].keys->size();
      // Without queries there is one empty chunk, so that gradients are written.
      for (int64_t begin = 0; begin < std::max<int64_t>(blocks, 1); begin += step) {
        SpatialChunk& chunk = group.chunks.emplace_back();
        chunk.sequence = s;
        chunk.kv_head = kv_head;
        chunk.blocks = {begin, std::min(begin + step, blocks)};
        chunk.sums.resize(static_cast<size_t>(group.key_blocks));
        if (want_dslopes) chunk.dslopes.assign(static_cast<size_t>(base.group()), 0.0);
      }
    }
  }
  return result;
}

}  // namespace

void spatial_forward(const SpatialProblem& problem, AttentionPositionsState* state) {
  std::optional<SpatialBounds> bounds;
  if (skip_rule_applies(problem.base)) bounds.emplace(problem);
  const std::vector<SpatialTask> tasks = spatial_tasks(problem);
  std::atomic<int64_t> visited{0}, total{0};
  core::parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
    const AttentionStats stats =
        spatial_forward_task(problem, tasks[static_cast<size_t>(task)], bounds ? &*bounds : nullptr, state);
    visited += stats.blocks_visited;
    total += stats.blocks_total;
  });
  if (state != nullptr) state->stats = {.blocks_visited = visited, .blocks_total = total};
}

void spatial_backward(const SpatialProblem& problem, const AttentionPositionsState& state, float* dslopes) {
  const core::KeepMemory keep;  // the next chunk reuses the sums of a chunk
  const Problem& base = problem.base;
  std::vector<SpatialChunkGroup> groups = spatial_chunks(problem, dslopes != nullptr);
  std::vector<std::pair<size_t, SpatialChunk*>> tasks;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (SpatialChunk& chunk : groups[g].chunks) tasks.emplace_back(g, &chunk);
  }
  const auto write = [&](const SpatialChunkGroup& group, int64_t key_block) {
    spatial_write_key_gradients(problem, group.chunks, key_block);
  };
  const auto release = [](SpatialChunkGroup& group) {
    for (SpatialChunk& chunk : group.chunks) chunk.sums.clear();
  };
  // As in the kernel for counted distances: if there are many groups, the thread that finishes the last chunk of a
  // group writes its gradients, and the memory of the group is reused.
  const bool write_at_once = groups.size() >= 8;
  std::vector<std::atomic<size_t>> ended(groups.size());
  core::parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
    const auto [g, chunk] = tasks[static_cast<size_t>(task)];
    SpatialChunkGroup& group = groups[g];
    spatial_backward_chunk(problem, state, *chunk);
    if (++ended[g] != group.chunks.size() || !write_at_once) return;
    for (int64_t key_block = 0; key_block < group.key_blocks; ++key_block) write(group, key_block);
    release(group);
  });
  for (SpatialChunkGroup& group : groups) {
    if (write_at_once) break;
    core::parallel_for(group.key_blocks, [&](int64_t key_block) { write(group, key_block); });
    release(group);
  }
  if (dslopes == nullptr) return;
  const auto slopes = static_cast<size_t>(base.dslopes_size());
  std::vector<double> sums(slopes, 0.0);
  for (const SpatialChunkGroup& group : groups) {
    for (const SpatialChunk& chunk : group.chunks) {
      for (size_t g = 0; g < chunk.dslopes.size(); ++g) {
        const int64_t head = chunk.kv_head * base.group() + static_cast<int64_t>(g);
        const int64_t sequence = base.biases->slopes_per_sequence ? base.sequences[chunk.sequence].number : 0;
        sums[static_cast<size_t>(sequence * base.heads + head)] += chunk.dslopes[g];
      }
    }
  }
  for (size_t i = 0; i < slopes; ++i) dslopes[i] = static_cast<float>(static_cast<double>(dslopes[i]) + sums[i]);
}

}  // namespace alibi::kernels
