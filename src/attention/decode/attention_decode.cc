// Calls of cached decoding, and the kernel for a few queries over keys in pages: which calls it takes.
#include <algorithm>

#include "attention/decode/decode.h"
#include "attention/decode/device_cache.h"
#include "attention/kernel.h"
#include "attention/kernel_state.h"
#include "core/check.h"

namespace alibi {
namespace {

using namespace kernels;

Problem checked_problem(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& out) {
  constexpr const char* operation = "attention_decode";
  check_cached_options(operation, options);
  // The kernel finds the rows in the cache and converts them, so only the shape of `keys` is used.
  const core::StateOf<KvCache>& held = core::state_of(cache);
  const Tensor keys = held.as_seen(q.dtype());
  Problem problem = make_problem(operation, q, keys, keys, out, options);
  add_gates(operation, held, problem);
  const bool is_view =
      !held.has_evicted() && held.shared.end == 0 &&
      numbers_in(held.dtype) == 1;  // otherwise the rows of the heads have no common stride, or are no numbers
  check_apart(operation, "out", out, "the cache's keys", is_view ? cache.keys() : held.k);
  check_apart(operation, "out", out, "the cache's values", is_view ? cache.values() : held.v);
  if (held.shared.end > 0) {
    check_apart(operation, "out", out, "the cache's keys", held.shared.k);
    check_apart(operation, "out", out, "the cache's values", held.shared.v);
  }
  return problem;
}

/// Above this number of rows that read the same keys, the kernels with tiles are faster.
constexpr int64_t few_rows = 16;

bool supports_pages(const Problem& problem) {
  constexpr int64_t multiple = 16;
  return problem.page_rows > 0 && problem.dropout == 0 && problem.head_dim % multiple == 0 &&
         problem.pages_hold_blocks_of(cache_block) &&
         std::all_of(problem.sequences.begin(), problem.sequences.end(),
                     [&](const Sequence& s) { return s.queries * problem.group() <= few_rows; });
}

}  // namespace

const Kernel& kernels::paged_decode_kernel() {
  static constexpr Kernel kernel = {
      .supports = supports_pages,
      .forward =
          [](const Problem& problem, AttentionState* state) {
            decode(problem, nullptr, state);
            return true;
          },
      .backward = [](const Problem&, const AttentionState&, const BiasSums&) { return false; },
  };
  return kernel;
}

void attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state) {
  if (cache.device() != Device::cpu) return decode_on_device(q, cache, options, out, state);
  const Problem problem = checked_problem(q, cache, options, out);
  if (state != nullptr) {
    *state = {};
    state->lse = Tensor::empty({problem.batch, problem.heads, problem.queries});
    core::state_of(state->kernel).lse = state->lse;
  }
  if (out.elements() == 0) return;
  decode(problem, &core::state_of(cache), state);
}

Tensor attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, AttentionState* state) {
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  attention_decode(q, cache, options, out, state);
  return out;
}

}  // namespace alibi
