#include "attention/vector/tasks.h"

#include <algorithm>

#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// Target number of chunks over all key/value heads. These are constants, because the results depend on them. The
/// larger one keeps many threads equally busy. It applies while a head has few chunks and their sums are small.
constexpr int64_t chunks_wanted = 256, min_chunks_wanted = 16;
constexpr int64_t few_of_head = 8, small_sums = int64_t{4} << 20;  // number of elements if each chunk saw all keys
/// Chunks begin at multiples of this row number.
constexpr int64_t chunk_grain = 4 * query_rows;

/// Creates chunks with key blocks and work, but without sums.
Chunk make_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, size_t s,
                 int64_t kv_head, const Range& rows) {
  Chunk chunk;
  chunk.sequence = s;
  chunk.kv_head = kv_head;
  chunk.rows = rows;
  const Sequence& sequence = problem.sequences[s];
  Range& all = chunk.key_blocks;
  all.begin = core::ceil_div(sequence.keys, key_rows);
  for (int64_t g = 0; g < problem.group(); ++g) {
    for (int64_t row = rows.begin; row < rows.end; row += query_rows) {
      const QueryBlock block = query_block_at(problem, sequence, kv_head * problem.group() + g, row);
      const Range visited = visited_key_blocks(state, index, s, block);
      if (visited.empty()) continue;
      all = {std::min(all.begin, visited.begin), std::max(all.end, visited.end)};
      chunk.work += visited.size();
    }
  }
  all.begin = std::min(all.begin, all.end);
  return chunk;
}

}  // namespace

QueryBlock query_block_at(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row) {
  QueryBlock block;
  block.head = head;
  block.row = row;
  block.rows = std::min(query_rows, sequence.queries - row);
  block.position = sequence.query_offset + row;
  block.bias = problem.bias(sequence, head);
  const int64_t last_position = block.position + block.rows - 1;
  block.keys = sequence.keys;
  block.outside =
      block.bias->slides() && !block.bias.coordinates && (block.position < 0 || last_position >= sequence.keys);
  block.seen = Problem::keys_seen(block.bias, block.position, last_position, sequence.keys);
  block.key_blocks = blocks_of(block.seen, key_rows);
  return block;
}

std::vector<QueryTask> query_tasks(const Problem& problem) {
  std::vector<QueryTask> tasks;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      for_each_task(problem, kv_head, {0, sequence.queries}, [&](const Range& heads, const Range& rows) {
        QueryTask& task = tasks.emplace_back();
        task = {.sequence = s, .heads = heads, .rows = rows};
        const int64_t first_rows = std::min(query_rows, rows.size());
        int64_t keys = 0;
        for (int64_t head = heads.begin; head < heads.end; ++head) {
          keys += likely_keys(problem, sequence, head, rows.begin, first_rows);
        }
        task.work = keys * rows.size();
      });
    }
  }
  most_work_first(tasks, &QueryTask::work);
  return tasks;
}

Range visited_key_blocks(const AttentionState& state, const BlockIndex& index, size_t sequence,
                         const QueryBlock& block) {
  if (block.bias.coordinates) return block.key_blocks;
  return core::state_of(state.kernel)
      .visited(core::StateOf<KernelState>::Kernel::vector, index.at(sequence, block.head, block.row / query_rows),
               block.key_blocks);
}

std::vector<ChunkGroup> chunk_groups(const Problem& problem, const AttentionState& state, const BlockIndex& index,
                                     const BiasGradients& bias) {
  const int64_t groups = static_cast<int64_t>(problem.sequences.size()) * problem.kv_heads;
  std::vector<ChunkGroup> result;
  result.reserve(static_cast<size_t>(groups));
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    const int64_t grains = core::ceil_div(sequence.queries, chunk_grain);
    const int64_t sums_of_chunk = 2 * sequence.keys * round_up(problem.head_dim, 16);
    const int64_t small = std::min(few_of_head, small_sums / std::max<int64_t>(1, sums_of_chunk));
    const int64_t wanted =
        std::max(core::ceil_div(min_chunks_wanted, groups), std::min(core::ceil_div(chunks_wanted, groups), small));
    const int64_t count = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, grains));
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      ChunkGroup& group = result.emplace_back();
      group.key_blocks = core::ceil_div(sequence.keys, key_rows);
      // A chunk ends where the accumulated work exceeds the next share of the total.
      std::vector<int64_t> work;
      int64_t total = 0;
      for (int64_t g = 0; g < grains; ++g) {
        const Range rows = {g * chunk_grain, std::min((g + 1) * chunk_grain, sequence.queries)};
        work.push_back(make_chunk(problem, state, index, s, kv_head, rows).work);
        total += work.back();
      }
      int64_t begin = 0, done = 0;
      for (int64_t g = 0; g < grains; ++g) {
        done += work[static_cast<size_t>(g)];
        const int64_t made = static_cast<int64_t>(group.chunks.size());
        if (g + 1 < grains && done * count < total * (made + 1)) continue;
        const int64_t end = std::min((g + 1) * chunk_grain, sequence.queries);
        group.chunks.push_back(make_chunk(problem, state, index, s, kv_head, {begin, end}));
        begin = end;
      }
      if (group.chunks.empty()) group.chunks.push_back(make_chunk(problem, state, index, s, kv_head, {}));
      for (Chunk& chunk : group.chunks) chunk.bias = bias.of_task();
      group.work = total;
    }
  }
  return result;
}

std::vector<std::pair<ChunkGroup*, Chunk*>> chunk_tasks(std::vector<ChunkGroup>& groups) {
  const auto sorted = [](auto& all, auto work) {
    std::vector<decltype(all.data())> pointers;
    for (auto& one : all) pointers.push_back(&one);
    most_work_first(pointers, work);
    return pointers;
  };
  std::vector<std::pair<ChunkGroup*, Chunk*>> tasks;
  for (ChunkGroup* group : sorted(groups, &ChunkGroup::work)) {
    for (Chunk* chunk : sorted(group->chunks, &Chunk::work)) tasks.emplace_back(group, chunk);
  }
  return tasks;
}

void allocate_sums(const Problem& problem, Chunk& chunk) {
  const int64_t floats = chunk.key_blocks.size() * key_rows * round_up(problem.head_dim, 16);
  for (std::shared_ptr<float>* sum : {&chunk.dk, &chunk.dv}) {
    const std::shared_ptr<void> memory = core::allocate(static_cast<size_t>(floats) * sizeof(float), true);
    *sum = {memory, static_cast<float*>(memory.get())};
  }
  if (problem.dlog_decay != nullptr) {
    chunk.gates.assign(static_cast<size_t>(problem.group() * chunk.key_blocks.size() * key_rows), 0.0);
  }
}

void release_sums(Chunk& chunk) {
  chunk.dk.reset();
  chunk.dv.reset();
  chunk.gates = {};
}

void add_gate_gradient(const Problem& problem, const ChunkGroup& group) {
  const Chunk& first = group.chunks.front();
  std::vector<double> of_keys(static_cast<size_t>(group.key_blocks * key_rows));
  for (int64_t g = 0; g < problem.group(); ++g) {
    std::fill(of_keys.begin(), of_keys.end(), 0.0);
    for (const Chunk& chunk : group.chunks) {
      const int64_t count = chunk.key_blocks.size() * key_rows;
      for (int64_t i = 0; i < count; ++i) {
        of_keys[static_cast<size_t>(chunk.key_blocks.begin * key_rows + i)] +=
            chunk.gates[static_cast<size_t>(g * count + i)];
      }
    }
    add_gate_gradient(problem, problem.sequences[first.sequence], first.kv_head * problem.group() + g, of_keys);
  }
}

}  // namespace alibi::kernels
