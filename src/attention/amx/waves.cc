#include <algorithm>

#include "attention/amx/backward.h"
#include "attention/amx/pack.h"
#include "attention/amx/tiles.h"
#include "attention/bias_gradient.h"
#include "attention/kernel_state.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels::amx {
namespace {

/// Number of blocks in a span. All layouts of a span must fit the second-level cache, and the first wave must have work
/// for many threads. It depends only on the shape, because the results depend on it.
int64_t span_blocks(const Problem& problem) {
  constexpr int64_t most = 32, least = 4, enough_tasks = 16;
  int64_t span = std::max(least, most * 2 / std::max<int64_t>(2, steps_of(problem.head_dim)));
  const auto tasks = [&] {
    int64_t count = 0;
    for (const Sequence& sequence : problem.sequences) count += core::ceil_div(sequence.keys, span * block_rows);
    return count * problem.kv_heads;
  };
  while (span > least && tasks() < enough_tasks) span /= 2;
  return span;
}

/// The pairs of spans of one key/value head of one sequence, in waves.
class SpanPairs {
 public:
  SpanPairs(const Problem& problem, const VisitedBlocks& visited, size_t sequence, int64_t kv_head, int64_t span)
      : span_(span),
        sequence_(sequence),
        kv_head_(kv_head),
        key_blocks_(core::ceil_div(problem.sequences[sequence].keys, block_rows)),
        query_blocks_(visited.index().blocks(sequence)),
        key_spans_(core::ceil_div(key_blocks_, span)),
        query_spans_(core::ceil_div(query_blocks_, span)),
        work_(static_cast<size_t>(key_spans_ * query_spans_), 0) {
    for (int64_t g = 0; g < problem.group(); ++g) {
      const int64_t head = kv_head * problem.group() + g;
      for (int64_t q = 0; q < query_blocks_; ++q) {
        const Range& keys = visited.at(sequence, head, q);
        for (int64_t k = keys.begin; k < keys.end; k = (k / span + 1) * span) {
          work_[at(k / span, q / span)] += std::min(keys.end, (k / span + 1) * span) - k;
        }
      }
    }
  }

  void add_to(std::vector<std::vector<BackwardTask>>& waves) const {
    const int64_t count = std::max(key_spans_, query_spans_);
    // In wave w, key span k is combined with query span (k + w) % count.
    std::vector<int64_t> key_left(static_cast<size_t>(key_spans_), 0), query_left(static_cast<size_t>(query_spans_), 0);
    for (int64_t k = 0; k < key_spans_; ++k) {
      for (int64_t q = 0; q < query_spans_; ++q) {
        if (work_[at(k, q)] == 0) continue;
        ++key_left[static_cast<size_t>(k)];
        ++query_left[static_cast<size_t>(q)];
      }
    }
    const std::vector<int64_t> key_all = key_left, query_all = query_left;
    for (int64_t w = 0; w < count; ++w) {
      for (int64_t k = 0; k < key_spans_; ++k) {
        const int64_t q = (k + w) % count;
        const auto key = static_cast<size_t>(k), query = static_cast<size_t>(q);
        const bool unseen =
            w == 0 && key_all[key] == 0;  // at least one task must write the gradients of these keys, which are zero
        if (!unseen && (q >= query_spans_ || work_[at(k, q)] == 0)) continue;
        BackwardTask task;
        task.sequence = sequence_;
        task.kv_head = kv_head_;
        task.key_block = k * span_;
        task.key_blocks = std::min(span_, key_blocks_ - task.key_block);
        task.first_of_keys = unseen || key_left[key] == key_all[key];
        task.last_of_keys = unseen || --key_left[key] == 0;
        if (!unseen) {
          task.query_block = q * span_;
          task.query_blocks = std::min(span_, query_blocks_ - task.query_block);
          task.first_of_queries = query_left[query] == query_all[query];
          task.last_of_queries = --query_left[query] == 0;
          task.work = work_[at(k, q)];
        }
        if (static_cast<int64_t>(waves.size()) <= w) waves.resize(static_cast<size_t>(w + 1));
        waves[static_cast<size_t>(w)].push_back(task);
      }
    }
  }

 private:
  size_t at(int64_t key_span, int64_t query_span) const {
    return static_cast<size_t>(key_span * query_spans_ + query_span);
  }

  int64_t span_;
  size_t sequence_;
  int64_t kv_head_;
  int64_t key_blocks_, query_blocks_;
  int64_t key_spans_, query_spans_;
  std::vector<int64_t> work_;  ///< [key_spans][query_spans], block pairs
};

}  // namespace

VisitedBlocks::VisitedBlocks(const Problem& problem, const AttentionState& state)
    : index_(problem, BlockIndex::Of::queries, block_rows) {
  const core::StateOf<KernelState>& forward = core::state_of(state.kernel);
  constexpr auto amx = core::StateOf<KernelState>::Kernel::amx;
  check_blocks(forward, amx, index_.size());
  visited_.reserve(static_cast<size_t>(index_.size()));
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    for (int64_t head = 0; head < problem.heads; ++head) {
      const HeadPlan plan(problem, s, head);
      for (int64_t row = 0; row < sequence.queries; row += block_rows) {
        const int64_t end = sequence.query_offset + std::min(row + block_rows, sequence.queries);
        const Range seen = plan.blocks_seen(sequence.query_offset + row, end - 1);
        visited_.push_back(forward.visited(amx, static_cast<int64_t>(visited_.size()), seen));
      }
    }
  }
}

std::vector<BackwardPart> backward_parts(const Problem& problem, const VisitedBlocks& visited) {
  constexpr int64_t enough_tasks = 64;
  const int64_t span = span_blocks(problem);
  const int64_t heads = static_cast<int64_t>(problem.sequences.size()) * problem.kv_heads;
  std::vector<BackwardPart> parts;
  int64_t tasks = enough_tasks;
  for (int64_t number = 0; number < heads; ++number) {
    const auto sequence = static_cast<size_t>(number / problem.kv_heads);
    if (tasks >= enough_tasks) {
      parts.push_back({.begin = number, .end = number, .waves = {}});
      tasks = 0;
    }
    SpanPairs(problem, visited, sequence, number % problem.kv_heads, span).add_to(parts.back().waves);
    parts.back().end = number + 1;
    tasks += core::ceil_div(problem.sequences[sequence].keys, span * block_rows);
  }
  for (BackwardPart& part : parts) {
    for (std::vector<BackwardTask>& wave : part.waves) most_work_first(wave, &BackwardTask::work);
  }
  return parts;
}

GradientSums::GradientSums(const Problem& problem, const std::vector<BackwardPart>& parts)
    : problem_(problem), block_size_(steps_of(problem.head_dim) * block_rows * block_rows) {
  for (const Sequence& sequence : problem.sequences) {
    query_blocks_.push_back(core::ceil_div(sequence.queries, block_rows));
    key_blocks_.push_back(core::ceil_div(sequence.keys, block_rows));
  }
  int64_t most = 0;
  for (const BackwardPart& part : parts) {
    int64_t blocks = 0;
    for (int64_t number = part.begin; number < part.end; ++number) blocks += blocks_of(number);
    if (part.waves.size() > 1) most = std::max(most, blocks);
  }
  if (most == 0) return;
  const size_t bytes = static_cast<size_t>(most * block_size_) * sizeof(float);
  memory_ = core::allocate(bytes, false);
}

void GradientSums::start(const BackwardPart& part) {
  used_ = part.waves.size() > 1;
  begin_ = part.begin;
  base_.clear();
  int64_t blocks = 0;
  for (int64_t number = part.begin; number < part.end; ++number) {
    base_.push_back(blocks);
    blocks += blocks_of(number);
  }
}

GateSums::GateSums(const Problem& problem)
    : problem_(problem),
      queries_(problem, BlockIndex::Of::queries, block_rows),
      keys_(problem, BlockIndex::Of::keys, block_rows) {
  if (problem.dlog_decay == nullptr) return;
  of_queries_.resize(static_cast<size_t>(queries_.size() * block_rows));
  of_keys_.resize(static_cast<size_t>(keys_.size() * problem.group() * block_rows));
}

double* GateSums::at(BlockIndex::Of of, size_t sequence, int64_t head, int64_t block) {
  const int64_t group = problem_.group();
  if (of == BlockIndex::Of::queries) return of_queries_.data() + queries_.at(sequence, head, block) * block_rows;
  return of_keys_.data() + (keys_.at(sequence, head / group, block) * group + head % group) * block_rows;
}

void GateSums::add(BlockIndex::Of of, size_t sequence, int64_t head, int64_t block, const float* sums, float scale) {
  double* const to = at(of, sequence, head, block);
  for (int64_t i = 0; i < block_rows; ++i) to[i] += static_cast<double>(scale) * static_cast<double>(sums[i]);
}

void GateSums::finish() {
  if (!used()) return;
  core::parallel_for(static_cast<int64_t>(problem_.sequences.size()) * problem_.heads, [&](int64_t i) {
    const auto s = static_cast<size_t>(i / problem_.heads);
    const int64_t head = i % problem_.heads;
    const Sequence& sequence = problem_.sequences[s];
    const HeadDecay decay = problem_.bias(sequence, head).decay;
    std::vector<double> of_keys(static_cast<size_t>(sequence.keys));
    for (int64_t key = 0; key < sequence.keys; ++key) {
      of_keys[static_cast<size_t>(key)] = -at(BlockIndex::Of::keys, s, head, key / block_rows)[key % block_rows];
    }
    for (int64_t row = 0; row < sequence.queries; ++row) {
      of_keys[static_cast<size_t>(decay.key_of(sequence.query_offset + row))] +=
          at(BlockIndex::Of::queries, s, head, row / block_rows)[row % block_rows];
    }
    add_gate_gradient(problem_, sequence, head, of_keys);
  });
}

int64_t GradientSums::blocks_of(int64_t number) const {
  const auto sequence = static_cast<size_t>(number / problem_.kv_heads);
  return problem_.group() * query_blocks_[sequence] + 2 * key_blocks_[sequence];
}

}  // namespace alibi::kernels::amx
