#include "attention/chunks.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "attention/kernel_state.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// Chunks to aim for over all key/value heads, constants since results depend on them: many, so that many threads are
/// kept busy and even, as long as one head's are few and their sums small; and a few where they are not.
constexpr int64_t chunks_wanted = 256, least_chunks_wanted = 16;
constexpr int64_t few_of_head = 8, small_sums = int64_t{4} << 20;  // elements, were each to see all keys
/// Rows that chunks begin at multiples of.
constexpr int64_t chunk_grain = 4 * query_rows;

/// Key blocks and work of the rows [begin, end) of a group of heads.
Chunk make_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, size_t s,
                 int64_t kv_head, int64_t begin, int64_t end) {
  Chunk chunk(s, kv_head, begin, end);
  const Sequence& sequence = problem.sequences[s];
  chunk.first = ceil_div(sequence.keys, key_rows);
  for (int64_t g = 0; g < problem.group(); ++g) {
    for (int64_t row = begin; row < end; row += query_rows) {
      const QueryBlock block = query_block_at(problem, sequence, kv_head * problem.group() + g, row);
      const auto [first, last] = visited_keys(state, index, s, block);
      if (first >= last) continue;
      chunk.first = std::min(chunk.first, first);
      chunk.last = std::max(chunk.last, last);
      chunk.work += last - first;
    }
  }
  chunk.first = std::min(chunk.first, chunk.last);
  return chunk;
}

}  // namespace

void BiasGradient::Add(const Problem& problem, const QueryBlock& block, int64_t distance, double dscore) {
  if (problem.num_buckets > 0) {
    const int64_t entry = std::clamp(distance, -problem.table_reach, problem.table_reach) + problem.table_reach;
    const int32_t bucket = problem.distance_bucket[static_cast<size_t>(entry)];
    buckets_[static_cast<size_t>(bucket)] += dscore;
  } else if (distance > 0 || problem.slopes_symmetric) {
    // The dscores of a row sum to zero, so distances may count from the block's nearest key here too.
    const int64_t nearest = std::min(block.nearest(0), block.nearest(block.rows - 1));
    slope_ -= dscore * static_cast<double>(std::abs(distance) - nearest);
  }
}

void BiasGradient::Add(const BiasGradient& other) {
  slope_ += other.slope_;
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
}

std::pair<int64_t, int64_t> visited_keys(const AttentionState& state, const BlockIndex& index, size_t sequence,
                                         const QueryBlock& block) {
  const KernelState::State& forward = state.kernel.state();
  if (!forward.is_of(KernelState::State::Kernel::vector)) return {block.first, block.last};
  const auto at = static_cast<size_t>(index.at(sequence, block.head, block.row));
  const int64_t first = std::clamp<int64_t>(forward.first_block[at], block.first, block.last);
  return {first, std::clamp<int64_t>(forward.last_block[at], first, block.last)};
}

std::vector<ChunkGroup> chunk_groups(const Problem& problem, const AttentionState& state, const BlockIndex& index,
                                     const BiasSums& sums) {
  const int64_t groups = static_cast<int64_t>(problem.sequences.size()) * problem.kv_heads;
  std::vector<ChunkGroup> result;
  result.reserve(static_cast<size_t>(groups));
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    const int64_t grains = ceil_div(sequence.queries, chunk_grain);
    const int64_t sums_of_chunk = 2 * sequence.keys * round_up(problem.head_dim, 16);
    const int64_t small = std::min(few_of_head, small_sums / std::max<int64_t>(1, sums_of_chunk));
    const int64_t wanted =
        std::max(ceil_div(least_chunks_wanted, groups), std::min(ceil_div(chunks_wanted, groups), small));
    const int64_t count = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, grains));
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      ChunkGroup& group = result.emplace_back();
      group.key_blocks = ceil_div(sequence.keys, key_rows);
      // Cut where the work, counted grain by grain, passes each further share.
      std::vector<int64_t> work;
      int64_t total = 0;
      for (int64_t g = 0; g < grains; ++g) {
        const int64_t end = std::min((g + 1) * chunk_grain, sequence.queries);
        work.push_back(make_chunk(problem, state, index, s, kv_head, g * chunk_grain, end).work);
        total += work.back();
      }
      int64_t begin = 0, done = 0;
      for (int64_t g = 0; g < grains; ++g) {
        done += work[static_cast<size_t>(g)];
        const int64_t made = static_cast<int64_t>(group.chunks.size());
        if (g + 1 < grains && done * count < total * (made + 1)) continue;
        const int64_t end = std::min((g + 1) * chunk_grain, sequence.queries);
        group.chunks.push_back(make_chunk(problem, state, index, s, kv_head, begin, end));
        begin = end;
      }
      if (group.chunks.empty()) group.chunks.emplace_back(s, kv_head, 0, 0);
      if (sums.dslopes == nullptr && sums.dtable == nullptr) continue;
      for (Chunk& chunk : group.chunks) {
        chunk.bias.assign(static_cast<size_t>(problem.group()), BiasGradient(problem));
      }
    }
  }
  return result;
}

ChunkOrder::ChunkOrder(std::vector<ChunkGroup>& groups) {
  const auto work_of = [](const ChunkGroup* group) {
    return std::accumulate(group->chunks.begin(), group->chunks.end(), int64_t{0},
                           [](int64_t sum, const Chunk& chunk) { return sum + chunk.work; });
  };
  std::vector<std::pair<int64_t, ChunkGroup*>> by_work;
  for (ChunkGroup& group : groups) by_work.emplace_back(work_of(&group), &group);
  std::stable_sort(by_work.begin(), by_work.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [work, group] : by_work) {
    const auto first = static_cast<std::ptrdiff_t>(order_.size());
    for (Chunk& chunk : group->chunks) order_.emplace_back(group, &chunk);
    std::stable_sort(order_.begin() + first, order_.end(),
                     [](const auto& a, const auto& b) { return a.second->work > b.second->work; });
  }
}

void allocate_sums(const Problem& problem, Chunk& chunk) {
  const int64_t floats = (chunk.last - chunk.first) * key_rows * round_up(problem.head_dim, 16);
  for (std::shared_ptr<float>* sum : {&chunk.dk, &chunk.dv}) {
    const std::shared_ptr<void> memory = allocate(static_cast<size_t>(floats) * sizeof(float), true);
    *sum = {memory, static_cast<float*>(memory.get())};
  }
}

void release_sums(Chunk& chunk) {
  chunk.dk.reset();
  chunk.dv.reset();
}

void add_bias_gradients(const Problem& problem, const std::vector<ChunkGroup>& groups, const BiasSums& sums) {
  if (sums.dslopes == nullptr && sums.dtable == nullptr) return;
  std::vector<double> dslopes(static_cast<size_t>(problem.batch * problem.heads), 0.0);
  std::vector<double> dtable(static_cast<size_t>(problem.num_buckets * problem.heads), 0.0);
  for (const ChunkGroup& group : groups) {
    for (const Chunk& chunk : group.chunks) {
      for (int64_t g = 0; g < problem.group(); ++g) {
        const int64_t head = chunk.kv_head * problem.group() + g;
        const int64_t batch = problem.slopes_per_batch ? problem.sequences[chunk.sequence].batch : 0;
        const BiasGradient& gradient = chunk.bias[static_cast<size_t>(g)];
        dslopes[static_cast<size_t>(batch * problem.heads + head)] += gradient.slope();
        for (int bucket = 0; bucket < problem.num_buckets; ++bucket) {
          dtable[static_cast<size_t>(bucket * problem.heads + head)] += gradient.buckets()[static_cast<size_t>(bucket)];
        }
      }
    }
  }
  const int64_t slopes = problem.slopes_per_batch ? problem.batch * problem.heads : problem.heads;
  for (int64_t i = 0; i < slopes && sums.dslopes != nullptr; ++i) {
    sums.dslopes[i] += static_cast<float>(dslopes[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < dtable.size() && sums.dtable != nullptr; ++i) sums.dtable[i] += static_cast<float>(dtable[i]);
}

}  // namespace alibi::kernels
