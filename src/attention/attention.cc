// Checks of the arguments, and choice of the kernel.
#include "alibi/attention.h"

#include <functional>
#include <utility>

#include "attention/bias_gradient.h"
#include "attention/kernel.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/isa.h"

namespace alibi {
namespace {

using kernels::Kernel;
using kernels::Problem;

/// Calls run(kernel) with the kernel of the problem's device.
void run_kernel(const char* operation, const Problem& problem, const std::function<bool(const Kernel&)>& run) {
  const bool on_cpu = problem.device == Device::cpu;
  if (!on_cpu) kernels::check_supported(operation, problem);
  check_usage(on_cpu ? kernels::run_on_cpu(problem, run) : run(*kernels::device_kernels().of(problem.device)),
              "[{}] no kernel of '{}' can compute this call", operation, name_of(problem.device));
}

/// Whether a query may lie outside the keys' positions while biases are counted from the nearest key.
bool lse_needs_shift(const Problem& problem) {
  if (problem.has_table()) return false;
  for (const kernels::Sequence& sequence : problem.sequences) {
    const int64_t last = sequence.query_offset + sequence.queries - 1;
    if (sequence.query_offset < 0 || last >= sequence.keys) return true;
  }
  return false;
}

/// Throws Error unless the memory of a state of KernelState::in_memory() fits the call.
void check_lent(const Problem& problem, const AttentionState& state) {
  const Shape shape = {problem.batch, problem.heads, problem.queries};
  for (const auto& [name, lse] : {std::pair{"lse", &state.lse}, {"kernel", &core::state_of(state.kernel).lse}}) {
    check_usage(
        lse->shape() == shape && lse->dtype() == DType::float32 && lse->contiguous() && lse->device() == problem.device,
        "[attention] the state's {} is {} {} on '{}', expected a contiguous float32 {} on '{}'", name,
        name_of(lse->dtype()), lse->shape(), name_of(lse->device()), shape, name_of(problem.device));
  }
}

Problem checked_problem(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                        const Tensor& out) {
  Problem problem = kernels::make_problem("attention", q, k, v, out, options);
  for (const auto& [name, input] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    kernels::check_apart("attention", "out", out, name, *input);
  }
  return problem;
}

}  // namespace

bool kernels::run_on_cpu(const Problem& problem, const std::function<bool(const Kernel&)>& run) {
  core::prepare_dispatch();
  const FlushDenormals flush;  // as in the worker threads, whatever the caller's setting
  for (const Kernel* kernel : {&paged_decode_kernel(), &amx_kernel(), &vector_kernel()}) {
    if (kernel->supports(problem) && run(*kernel)) return true;
  }
  return false;
}

void kernels::check_supported(const char* operation, const Problem& problem) {
  const Kernel* const kernel = device_kernels().of(problem.device);
  if (kernel != nullptr && kernel->supports(problem)) return;
  const std::string why = kernel != nullptr && kernel->refusal != nullptr ? ": " + kernel->refusal(problem) : "";
  fail("[{}] '{}' does not support this call{}; docs/how-to/gpu.md lists what it supports", operation,
       name_of(problem.device), why);
}

core::PerDevice<Kernel>& kernels::device_kernels() {
  static core::PerDevice<Kernel> kernels(&cuda_kernel());
  return kernels;
}

core::PerDevice<kernels::CacheKernel>& kernels::device_cache_kernels() {
  static core::PerDevice<CacheKernel> kernels(cuda_cache_kernel());
  return kernels;
}

AttentionStats count_blocks(const AttentionState& state) {
  const core::StateOf<KernelState>& kept = core::state_of(state.kernel);
  return state.stats.blocks_total >= 0 && !kept.caller_blocks.defined() ? state.stats
                                                                        : kernels::count_device_blocks(kept);
}

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                     const Tensor& out) {
  const Problem problem = checked_problem(q, k, v, options, out);
  if (out.elements() > 0 && problem.device != Device::cpu) kernels::check_supported("attention", problem);
}

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, Tensor& out,
               AttentionState* state) {
  const Problem problem = checked_problem(q, k, v, options, out);
  if (state != nullptr && core::state_of(state->kernel).caller_blocks.defined()) {
    check_lent(problem, *state);
    state->stats = {};
  } else if (state != nullptr) {
    const Shape shape = {problem.batch, problem.heads, problem.queries};
    *state = {.lse = Tensor::empty(shape, DType::float32, problem.device), .stats = {}, .kernel = {}};
    core::StateOf<KernelState>& kept = core::state_of(state->kernel);
    kept.lse = lse_needs_shift(problem) ? Tensor::empty(shape, DType::float32, problem.device) : state->lse;
    kept.words = KernelState::saved_words(problem.batch, problem.queries, problem.heads, options);
  }
  if (out.elements() == 0) return;
  run_kernel("attention", problem, [&](const Kernel& kernel) { return kernel.forward(problem, state); });
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 AttentionState* state) {
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  attention(q, k, v, options, out, state);
  return out;
}

void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                        const AttentionState& state, const AttentionOptions& options, Tensor& dq, Tensor& dk,
                        Tensor& dv, AttentionBiasGradients bias_gradients) {
  Problem problem = kernels::make_problem("attention_backward", q, k, v, out, options);
  const kernels::BiasSums sums =
      kernels::add_gradients("attention_backward", problem, dout, q, k, v, out, state, dq, dk, dv, bias_gradients);
  if (dq.elements() == 0 || dk.elements() == 0) {
    if (dq.elements() > 0) dq.fill(0);
    if (dk.elements() > 0) {
      dk.fill(0);
      dv.fill(0);
    }
    return;
  }
  if (!options.seqused_k.empty() || !options.leftpad_k.empty()) {  // rows that no sequence uses
    dk.fill(0);
    dv.fill(0);
  }
  run_kernel("attention_backward", problem,
             [&](const Kernel& kernel) { return kernel.backward(problem, state, sums); });
  if (problem.device == Device::cpu) kernels::add_sink_gradient(problem, state, sums);
}

}  // namespace alibi
