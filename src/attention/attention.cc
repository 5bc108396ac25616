// Checks of the arguments, and the choice of the kernel.
#include "alibi/attention.h"

#include <cmath>

#include "attention/kernel_state.h"
#include "attention/make_problem.h"
#include "attention/problem.h"
#include "core/isa.h"

namespace alibi {
namespace {

using kernels::Kernel;
using kernels::Problem;

const Kernel& kernel_for(const Problem& problem) {
  prepare_dispatch();
  const Kernel& amx = kernels::amx_kernel();
  return amx.supports(problem) ? amx : kernels::vector_kernel();
}

/// True if a query may lie outside of the keys' positions while scores carry a linear bias.
bool lse_needs_shift(const Problem& problem) {
  if (!problem.distance_table.empty()) return false;
  for (const kernels::Sequence& sequence : problem.sequences) {
    const int64_t last = sequence.query_offset + sequence.queries - 1;
    if (sequence.query_offset < 0 || last >= sequence.keys) return true;
  }
  return false;
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Tensor& out,
               AttentionState* state) {
  const Problem problem = kernels::make_problem("attention", q, k, v, out, options);
  kernels::check_apart("attention", "out", out, "q", q);
  if (state != nullptr) {
    const Shape shape = {problem.batch, problem.heads, problem.queries};
    *state = {.lse = Tensor::empty(shape), .stats = {}, .kernel = {}};
    KernelState::State& kernel = state->kernel.state();
    kernel.lse = lse_needs_shift(problem) ? Tensor::empty(shape) : state->lse;
    kernel.words = KernelState::saved_words(problem.batch, problem.queries, problem.heads, options);
  }
  if (out.elements() == 0) return;
  kernel_for(problem).forward(problem, state);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 AttentionState* state) {
  Tensor out = Tensor::empty(q.shape(), q.dtype());
  attention(q, k, v, options, out, state);
  return out;
}

void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const AttentionState& state, const AttentionOptions& options, Tensor& dq, Tensor& dk,
                        Tensor& dv, AttentionBiasGradients bias_gradients) {
  Problem problem = kernels::make_problem("attention_backward", q, k, v, out, options);
  const kernels::BiasSums sums = kernels::add_gradients(problem, dout, q, k, v, out, state, dq, dk, dv, bias_gradients);
  if (dq.elements() == 0 || dk.elements() == 0) {
    if (dq.elements() > 0) dq.fill(0);
    if (dk.elements() > 0) {
      dk.fill(0);
      dv.fill(0);
    }
    return;
  }
  kernel_for(problem).backward(problem, state, sums);
}

}  // namespace alibi
