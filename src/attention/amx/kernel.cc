// bfloat16 attention on AMX or AVX512-BF16: the supported problems, and the division of the work into tasks.
#include "attention/kernel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "attention/amx/backward.h"
#include "attention/amx/pack.h"
#include "attention/amx/plan.h"
#include "attention/amx/tiles.h"
#include "attention/kernel_state.h"
#include "core/parallel.h"
#include "core/product_rates.h"

namespace alibi::kernels {

namespace {

using namespace amx;

static_assert(block_rows >= core::StateOf<KernelState>::min_query_rows);

/// Very large biases, and very large or small scales, would overflow float32 in the units of the tiles.
bool in_range(const Problem& problem) {
  constexpr float max_bias = 0x1p20f, min_scale = 0x1p-20f, max_scale = 0x1p20f;
  constexpr int64_t max_parameters = 4096;  // each task of the backward pass has its own sums
  const float scale = std::abs(problem.scale);
  return scale >= min_scale && scale <= max_scale &&
         std::all_of(problem.sequences.begin(), problem.sequences.end(), [&](const Sequence& sequence) {
           for (int64_t head = 0; head < problem.heads; ++head) {
             const Bias& bias = problem.biases->of(sequence.number, head);
             if (!(bias.parameters() <= max_parameters && bias.magnitude() <= max_bias)) return false;
           }
           return true;
         });
}

/// Every query must have a key at its own position, so that no row is empty and biases that slide start at 0. There
/// must be enough queries to make the cost of copying the keys into tiles small.
bool fits(const Sequence& sequence) {
  constexpr int64_t enough_queries = 32, keys_per_query = 8;
  if (sequence.queries == 0) return true;
  return sequence.query_offset >= 0 && sequence.query_offset + sequence.queries <= sequence.keys &&
         (sequence.queries >= enough_queries || sequence.keys <= keys_per_query * sequence.queries);
}

bool amx_supports(const Problem& problem) {
  constexpr int64_t max_columns = 256;
  return core::prefers_bf16() && problem.dtype == DType::bfloat16 && problem.softcap == 0 &&
         problem.head_dim <= max_columns && problem.pages_hold_blocks_of(block_rows) && in_range(problem) &&
         std::all_of(problem.sequences.begin(), problem.sequences.end(), fits);
}

/// Tasks sorted by decreasing work.
std::vector<ForwardTask> forward_tasks(const Problem& problem) {
  constexpr int64_t rows = ForwardTask::blocks_together * block_rows;
  std::vector<ForwardTask> tasks;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    for (int64_t head = 0; head < problem.heads; ++head) {
      for (int64_t row = 0; row < sequence.queries; row += rows) {
        const int64_t work = likely_keys(problem, sequence, head, row, std::min(rows, sequence.queries - row));
        tasks.push_back({.sequence = s, .head = head, .block = row / block_rows, .work = work});
      }
    }
  }
  most_work_first(tasks, &ForwardTask::work);
  return tasks;
}

bool amx_forward(const Problem& problem, AttentionState* state) {
  const PackedKeys keys(problem);
  // Masked keys are multiplied by weights of 0 here. The product is 0 only if they are finite.
  if (!keys.finite()) return false;
  const BlockIndex index(problem, BlockIndex::Of::queries, block_rows);
  if (state != nullptr && skip_rule_applies(problem)) {
    core::state_of(state->kernel).begin(core::StateOf<KernelState>::Kernel::amx, index.size());
  }
  const std::vector<ForwardTask> tasks = forward_tasks(problem);
  std::atomic<int64_t> visited{0}, total{0};
  core::parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    const ForwardTask& task = tasks[static_cast<size_t>(i)];
    const AttentionStats stats = forward_task(problem, task, keys, index, state);
    visited += stats.blocks_visited;
    total += stats.blocks_total;
  });
  if (state != nullptr) state->stats = {.blocks_visited = visited, .blocks_total = total};
  return true;
}

bool amx_backward(const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  const VisitedBlocks visited(problem, state);
  const std::vector<BackwardPart> parts = backward_parts(problem, visited);
  GradientSums gradients(problem, parts);
  GateSums gates(problem);
  BiasGradients bias(problem, sums);
  std::atomic<bool> finite{true};
  for (const BackwardPart& part : parts) {
    gradients.start(part);
    for (const std::vector<BackwardTask>& wave : part.waves) {
      std::vector<std::vector<BiasGradient>> of_tasks(wave.size(), bias.of_task());
      core::parallel_for(static_cast<int64_t>(wave.size()), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        if (!backward_task(problem, wave[at], state, visited, gradients, gates, of_tasks[at])) finite = false;
      });
      if (!finite) return false;
      for (size_t i = 0; i < wave.size(); ++i) bias.add(wave[i].sequence, wave[i].kv_head, of_tasks[i]);
    }
  }
  bias.finish();
  gates.finish();
  return true;
}

constexpr PartSupport parts = {
    .query_rows = block_rows, .key_rows = block_rows, .blocks_at_once = item_blocks, .key_maxima = key_maxima};
constexpr Kernel kernel = {.supports = amx_supports, .forward = amx_forward, .backward = amx_backward, .parts = &parts};

}  // namespace

const Kernel& amx_kernel() { return kernel; }

}  // namespace alibi::kernels
