// bfloat16 attention on AMX: which problems it takes, and the work in tasks.
#include "attention/vector/kernel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "alibi/runtime.h"
#include "attention/amx/backward.h"
#include "attention/amx/pack.h"
#include "attention/amx/plan.h"
#include "attention/blocks.h"
#include "attention/kernel_state.h"
#include "attention/skip.h"
#include "core/parallel.h"

namespace alibi::kernels {

#if defined(__x86_64__)
namespace {

using namespace amx;

/// Slopes, biases and scales far from one would leave float32's range in the units of the tiles.
bool in_range(const Problem& problem) {
  constexpr float most_slope = 0x1p20f, least_scale = 0x1p-20f, most_scale = 0x1p20f;
  const auto fine = [](float slope) { return slope <= most_slope || slope == HUGE_VALF; };
  const auto fine_bias = [](float bias) { return bias <= most_slope; };
  const float scale = std::abs(problem.scale);
  return scale >= least_scale && scale <= most_scale &&
         std::all_of(problem.slopes_before.begin(), problem.slopes_before.end(), fine) &&
         std::all_of(problem.slopes_after.begin(), problem.slopes_after.end(), fine) &&
         std::all_of(problem.largest_bias.begin(), problem.largest_bias.end(), fine_bias);
}

/// Every query must have a key at its own position, so that no row is empty and linear biases start from 0; and there
/// must be enough queries to pay for packing the keys.
bool fits(const Sequence& sequence) {
  constexpr int64_t enough_queries = 32, keys_per_query = 8;
  if (sequence.queries == 0) return true;
  return sequence.query_offset >= 0 && sequence.query_offset + sequence.queries <= sequence.keys &&
         (sequence.queries >= enough_queries || sequence.keys <= keys_per_query * sequence.queries);
}

bool amx_supports(const Problem& problem) {
  constexpr int64_t most_columns = 256;
  constexpr int most_buckets = 4096;  // each task of the backward pass has sums of its own
  return isa() == Isa::amx && problem.dtype == DType::bfloat16 && problem.head_dim <= most_columns &&
         problem.num_buckets <= most_buckets && in_range(problem) &&
         std::all_of(problem.sequences.begin(), problem.sequences.end(), fits);
}

/// The most work first.
std::vector<ForwardTask> forward_tasks(const Problem& problem, const BlockNumbers& numbers) {
  std::vector<ForwardTask> tasks;
  std::vector<int64_t> work;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      for (int64_t b = 0; b < numbers.blocks(s); b += ForwardTask::blocks_together) {
        tasks.push_back({.sequence = s, .head = head, .block = b});
        work.push_back(likely_keys(problem, query_block_at(problem, problem.sequences[s], head, 32 * b)));
      }
    }
  }
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work[a] > work[b]; });
  std::vector<ForwardTask> sorted;
  sorted.reserve(tasks.size());
  for (const size_t i : order) sorted.push_back(tasks[i]);
  return sorted;
}

void amx_forward(const Problem& problem, AttentionState* state) {
  const PackedKeys keys(problem);
  // Masked keys are multiplied by weights of 0 here, which only finite ones survive.
  if (!keys.finite()) return vector_forward(problem, state);
  const BlockNumbers numbers(problem, BlockNumbers::Of::queries);
  if (state != nullptr && may_skip(problem)) {
    state->kernel.state().begin(KernelState::State::Kernel::amx, numbers.size());
  }
  const std::vector<ForwardTask> tasks = forward_tasks(problem, numbers);
  std::atomic<int64_t> visited{0}, total{0};
  parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    const ForwardTask& task = tasks[static_cast<size_t>(i)];
    const KeyView view = keys.view(task.sequence, task.head / problem.group());
    const AttentionStats stats = forward_task(problem, task, view, keys.largest_value(), numbers, state);
    visited += stats.blocks_visited;
    total += stats.blocks_total;
  });
  if (state != nullptr) state->stats = {.blocks_visited = visited, .blocks_total = total};
}

/// The gradient of the bias: each task of a wave has sums of its own, which are added in the order of the tasks.
class BiasTotals {
 public:
  BiasTotals(const Problem& problem, const BiasSums& sums)
      : problem_(problem), sums_(sums), wanted_(sums.dslopes != nullptr || sums.dtable != nullptr) {
    for (size_t s = 0; s < problem.sequences.size() && wanted_; ++s) {
      for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
        totals_.chunks.emplace_back(s, kv_head, 0, 0).bias = none();
      }
    }
  }

  void start(const std::vector<BackwardTask>& wave) {
    if (wanted_) of_tasks_.assign(wave.size(), none());
  }
  std::vector<BiasGradient>* of_task(size_t task) { return wanted_ ? &of_tasks_[task] : nullptr; }
  void add(const std::vector<BackwardTask>& wave) {
    for (size_t i = 0; i < of_tasks_.size(); ++i) {
      const size_t at = wave[i].sequence * static_cast<size_t>(problem_.kv_heads);
      std::vector<BiasGradient>& total = totals_.chunks[at + static_cast<size_t>(wave[i].kv_head)].bias;
      for (size_t g = 0; g < total.size(); ++g) total[g].Add(of_tasks_[i][g]);
    }
  }
  void finish() const {
    if (wanted_) add_bias_gradients(problem_, {totals_}, sums_);
  }

 private:
  std::vector<BiasGradient> none() const {
    return std::vector<BiasGradient>(static_cast<size_t>(problem_.group()), BiasGradient(problem_));
  }

  const Problem& problem_;
  const BiasSums& sums_;
  bool wanted_;
  ChunkGroup totals_;  ///< a chunk for each key/value head of each sequence
  std::vector<std::vector<BiasGradient>> of_tasks_;
};

void amx_backward(const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  const VisitedBlocks visited(problem, state);
  const std::vector<BackwardPart> parts = backward_parts(problem, visited);
  GradientSums gradients(problem, parts);
  BiasTotals bias(problem, sums);
  std::atomic<bool> finite{true};
  for (const BackwardPart& part : parts) {
    gradients.start(part);
    for (const std::vector<BackwardTask>& wave : part.waves) {
      bias.start(wave);
      parallel_for(static_cast<int64_t>(wave.size()), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        if (!backward_task(problem, wave[at], state, visited, gradients, bias.of_task(at))) finite = false;
      });
      bias.add(wave);
    }
    if (!finite) break;
  }
  if (finite) return bias.finish();
  vector_backward(problem, state, sums);
}

}  // namespace

const Kernel& amx_kernel() {
  static constexpr Kernel kernel = {
      .name = "amx", .supports = amx_supports, .forward = amx_forward, .backward = amx_backward};
  return kernel;
}

#else

const Kernel& amx_kernel() {
  static constexpr Kernel kernel = {.name = "amx",
                                    .supports = [](const Problem&) { return false; },
                                    .forward = vector_forward,
                                    .backward = vector_backward};
  return kernel;
}

#endif

}  // namespace alibi::kernels
