// Attention over a sequence whose rows are divided over ranks. The forward pass gives each rank's kernel its queries,
// the keys that they need and the bounds of all keys, so that it takes the decisions of one process and has its bits.
// The backward pass is that of an ordinary call whose keys are those that the rank read.
#include "alibi/sequence_parallel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attention/bias_gradient.h"
#include "attention/halo/exchange.h"
#include "attention/halo/reach.h"
#include "attention/kernel.h"
#include "attention/kernel_state.h"
#include "attention/key_part.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/isa.h"
#include "core/parallel.h"

namespace alibi {

using kernels::Kernel;
using kernels::KeyPart;
using kernels::Problem;
using kernels::Range;

namespace kernels::halo {
namespace {

constexpr const char* forward_name = "attention_over_ranks";
constexpr const char* backward_name = "attention_over_ranks_backward";

// Whole query blocks of 32 and 48 rows, tasks of 192 rows, and key blocks of 32 and 64 rows.
static_assert(SequenceShard::row_multiple % 48 == 0 && SequenceShard::row_multiple % 64 == 0);

void check_call(const char* operation, const SequenceRanks& ranks, int64_t length, const Tensor& q,
                const AttentionOptions& options) {
  check_usage(ranks.count >= 1 && ranks.rank >= 0 && ranks.rank < ranks.count,
              "[{}] ranks.rank is {} of {}, expected 0 to {}", operation, ranks.rank, ranks.count, ranks.count - 1);
  check_usage(ranks.count == 1 || ranks.exchange, "[{}] ranks.exchange is not set, expected a function for {} ranks",
              operation, ranks.count);
  const char* const given = options.query_offset                                             ? "query_offset"
                            : options.block_table                                            ? "block_table"
                            : !options.seqused_k.empty()                                     ? "seqused_k"
                            : !options.leftpad_k.empty()                                     ? "leftpad_k"
                            : !options.cu_seqlens_q.empty() || !options.cu_seqlens_k.empty() ? "cu_seqlens"
                                                                                             : nullptr;
  check_usage(given == nullptr, "[{}] {} is set, expected whole sequences of {} rows", operation, given ? given : "",
              length);
  check_usage(q.device() == Device::cpu, "[{}] q is on '{}', expected 'cpu'; copy the tensors with to(Device::cpu)",
              operation, name_of(q.device()));
}

void check_shard(const char* operation, const SequenceRanks& ranks, int64_t length, const Problem& problem) {
  const SequenceShard shard = sequence_shard(length, ranks.rank, ranks.count);
  for (const auto& [name, rows] : {std::pair{"q", problem.queries}, {"k", problem.keys}}) {
    check_usage(rows == shard.rows,
                "[{}] {} has {} rows, expected {}, the shard of rank {} of {} in a sequence of {} rows", operation,
                name, rows, shard.rows, ranks.rank, ranks.count, length);
  }
}

Views views_of(const Problem& problem, const Range& shard, int64_t length) {
  Views views = {.whole = problem, .own = problem, .layout = {length, problem.batch, problem.kv_heads}};
  for (Sequence& sequence : views.own.sequences) {
    sequence.keys = length;
    sequence.key_begin = -shard.begin;
    sequence.query_offset = sequence.first_query_drawn = shard.begin;
  }
  views.whole.queries = views.whole.keys = length;
  for (Sequence& sequence : views.whole.sequences) {
    sequence.keys = sequence.queries = length;
    sequence.query_offset = 0;
  }
  return views;
}

/// The gates of all keys.
std::shared_ptr<const Decays> gather_gates(const SequenceRanks& ranks, const DividedSequence& layout,
                                           const Tensor& log_decay) {
  const int64_t heads = log_decay.size(2);
  std::vector<Tensor> parts;
  std::vector<std::span<std::byte>> bytes;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const Shape shape = {layout.batch, layout.shard(ranks, rank).size(), heads};
    parts.push_back(rank == ranks.rank ? log_decay.clone() : Tensor::empty(shape));
    bytes.emplace_back(static_cast<std::byte*>(parts.back().raw()), parts.back().bytes());
  }
  all_gather(ranks, bytes);
  Tensor all = Tensor::empty({layout.batch, layout.length, heads});
  for (int rank = 0; rank < ranks.count; ++rank) {
    const Range rows = layout.shard(ranks, rank);
    all.slice(1, rows.begin, rows.end).copy_from(parts[static_cast<size_t>(rank)]);
  }
  std::vector<Decays::KeyRows> sequences;
  for (int64_t b = 0; b < layout.batch; ++b) sequences.push_back({b, 0, layout.length});
  return std::make_shared<const Decays>(forward_name, all, sequences);
}

/// Gates, or gradients of them, [batch, rows, kv_heads, heads that read the key].
Tensor by_kv_head(const Tensor& gates, const DividedSequence& layout) {
  const Tensor together = gates.contiguous() ? gates : gates.clone();
  return together.reshape({layout.batch, gates.size(1), layout.kv_heads, gates.size(2) / layout.kv_heads});
}
/// The same as they are given to attention(), [batch, rows, heads].
Tensor by_head(const Tensor& gates) {
  return gates.reshape({gates.size(0), gates.size(1), gates.size(2) * gates.size(3)});
}

/// Memory for the rows that this rank reads.
RankRows window_of(const KeyRanges& needs, const SequenceRanks& ranks, const DividedSequence& layout,
                   const RankRows& own) {
  Range range = layout.shard(ranks, ranks.rank);
  const auto mine = needs.begin() + ranks.rank * static_cast<int64_t>(layout.pairs());
  std::for_each(mine, mine + static_cast<int64_t>(layout.pairs()), [&](const Range& rows) {
    range = {std::min(range.begin, rows.begin), std::max(range.end, rows.end)};
  });
  RankRows window = {range, {}};
  for (const Tensor& rows : own.tensors) {
    window.tensors.emplace_back(Shape{rows.size(0), range.size(), rows.size(2), rows.size(3)}, rows.dtype());
  }
  return window;
}

/// The ranges of all ranks from those of each.
KeyRanges gather_ranges(const SequenceRanks& ranks, const DividedSequence& layout, const std::vector<Range>& mine) {
  std::vector<std::vector<int64_t>> parts(static_cast<size_t>(ranks.count), std::vector<int64_t>(2 * layout.pairs()));
  std::vector<int64_t>& own = parts[static_cast<size_t>(ranks.rank)];
  for (size_t i = 0; i < mine.size(); ++i) {
    own[2 * i] = mine[i].begin;
    own[2 * i + 1] = mine[i].end;
  }
  all_gather(ranks, parts);
  KeyRanges result;
  for (const std::vector<int64_t>& part : parts) {
    for (size_t i = 0; i < layout.pairs(); ++i) result.push_back({part[2 * i], part[2 * i + 1]});
  }
  return result;
}

/// Enlarges the ranges on the sides where a kernel needed more keys. Returns whether it did on any rank.
bool enlarge(const SequenceRanks& ranks, const KeyPart& part, const Range& shard, int64_t length,
             std::vector<Range>& ranges) {
  constexpr int64_t min_step = 1024;
  std::vector<std::vector<uint8_t>> missing(static_cast<size_t>(ranks.count), {0});
  for (size_t i = 0; i < ranges.size(); ++i) {
    Range& range = ranges[i];
    const uint8_t sides = part.missing[i];
    if (sides == 0) continue;
    missing[static_cast<size_t>(ranks.rank)].front() = 1;
    if (sides & KeyPart::before) {
      range.begin = std::max<int64_t>(0, range.begin - round_up(shard.begin - range.begin, min_step) - min_step);
    }
    if (sides & KeyPart::after) {
      range.end = std::min(length, range.end + round_up(range.end - shard.end, min_step) + min_step);
    }
  }
  all_gather(ranks, missing);
  return std::any_of(missing.begin(), missing.end(), [](const auto& of_rank) { return of_rank.front() != 0; });
}

/// Runs a kernel that all ranks support. Returns false if it cannot handle the keys, on all ranks.
bool forward_with(const SequenceRanks& ranks, const Kernel& kernel, const Views& views, const Samples& samples,
                  const Tensor& k, const Tensor& v, AttentionState* local, KeyRanges& needs) {
  const Range shard = views.layout.shard(ranks, ranks.rank);
  const KeysOfAllRanks keys = measure(ranks, views, kernel, samples);
  const auto is_finite = [](float most) { return most <= std::numeric_limits<float>::max(); };
  if (!std::all_of(keys.maxima.begin(), keys.maxima.end(), is_finite)) return false;
  std::vector<Range> mine = reach(views, shard, kernel, keys.bounds.get());
  bool more = true;
  while (more) {
    needs = gather_ranges(ranks, views.layout, mine);
    const RankRows own = {shard, {k, v}};
    RankRows window = window_of(needs, ranks, views.layout, own);
    fetch(ranks, views.layout, needs, own, window);
    Problem problem = views.own;
    KeyPart part(problem, window.range, mine);
    part.bounds = keys.bounds.get();
    part.maxima = keys.maxima;
    problem.part = &part;
    problem.keys = window.range.size();
    problem.k = view_of(window.tensors[0]);
    problem.v = view_of(window.tensors[1]);
    for (Sequence& sequence : problem.sequences) sequence.key_begin = -window.range.begin;
    if (shard.size() > 0) {
      check_usage(kernel.forward(problem, local), "[{}] the kernel found infinity or NaN in finite keys", forward_name);
    }
    more = enlarge(ranks, part, shard, views.layout.length, mine);
  }
  return true;
}

/// The state of an ordinary call with the keys of a window, and its kernel. Key blocks are counted from the window's
/// first.
AttentionState state_within(const SequenceAttentionState& state, const Range& window, const Problem& problem,
                            const Kernel*& kernel) {
  using Kind = core::StateOf<KernelState>::Kernel;
  const core::StateOf<KernelState>& kept = core::state_of(state.local.kernel);
  const bool is_amx = kept.kernel == Kind::amx || (kept.kernel == Kind::none && amx_kernel().supports(problem));
  kernel = is_amx ? &amx_kernel() : &vector_kernel();
  AttentionState result = {.lse = state.local.lse, .stats = {}, .kernel = {}};
  core::StateOf<KernelState>& shifted = core::state_of(result.kernel);
  shifted.kernel = kept.kernel;
  shifted.lse = kept.lse;
  const int64_t first = window.begin / kernel->parts->key_rows;
  for (const auto& [from, to] :
       {std::pair{&kept.first_block, &shifted.first_block}, {&kept.last_block, &shifted.last_block}}) {
    for (const int32_t block : *from) to->push_back(static_cast<int32_t>(std::max<int64_t>(0, block - first)));
  }
  return result;
}

}  // namespace
}  // namespace kernels::halo

SequenceShard sequence_shard(int64_t length, int rank, int ranks) {
  check_usage(
      length >= 0 && ranks >= 1 && rank >= 0 && rank < ranks,
      "[sequence_shard] length is {} and rank {} of {}, expected a length from 0 and a rank below the number of ranks",
      length, rank, ranks);
  const int64_t grains = core::ceil_div(length, SequenceShard::row_multiple);
  const auto begin_of = [&](int64_t number) {
    return std::min(length, grains * number / ranks * SequenceShard::row_multiple);
  };
  const int64_t first = begin_of(rank);
  return {first, begin_of(int64_t{rank} + 1) - first};
}

void attention_over_ranks(const SequenceRanks& ranks, int64_t length, const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options, Tensor& out, SequenceAttentionState* state) {
  using namespace kernels::halo;
  check_call(forward_name, ranks, length, q, options);
  Problem problem = kernels::make_problem(forward_name, q, k, v, out, options);
  check_shard(forward_name, ranks, length, problem);
  for (const auto& [name, input] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    kernels::check_apart(forward_name, "out", out, name, *input);
  }
  core::prepare_dispatch();
  const kernels::FlushDenormals flush;
  const SequenceShard shard = sequence_shard(length, ranks.rank, ranks.count);
  if (options.log_decay) {
    problem.decays = gather_gates(ranks, {length, problem.batch, problem.kv_heads}, *options.log_decay);
  }
  Views views = views_of(problem, {shard.first, shard.first + shard.rows}, length);
  KeyPart own(problem, {shard.first, shard.first + shard.rows}, {});
  own.fetched.assign(views.layout.pairs(), own.rows);
  views.own.part = &own;
  AttentionState* local = nullptr;
  if (state != nullptr) {
    local = &state->local;
    *local = {.lse = Tensor::empty({problem.batch, problem.heads, problem.queries}), .stats = {}, .kernel = {}};
    core::state_of(local->kernel).lse = local->lse;
    core::state_of(local->kernel).words =
        KernelState::saved_words(problem.batch, problem.queries, problem.heads, options);
  }
  const std::vector<const Kernel*> all = {&kernels::amx_kernel(), &kernels::vector_kernel()};
  const Samples samples(ranks, views, all);
  KeyRanges needs;
  bool done = false;
  for (size_t i = 0; i < all.size() && !done; ++i) {
    done = samples.supported(i) && forward_with(ranks, *all[i], views, samples, k, v, local, needs);
  }
  check_usage(done, "[{}] no kernel supports this call", forward_name);
  if (state == nullptr) return;
  state->keys_read.clear();
  for (const Range& range : needs) state->keys_read.emplace_back(range.begin, range.end);
}

void attention_over_ranks_backward(const SequenceRanks& ranks, int64_t length, const Tensor& dout, const Tensor& q,
                                   const Tensor& k, const Tensor& v, const Tensor& out,
                                   const SequenceAttentionState& state, const AttentionOptions& options, Tensor& dq,
                                   Tensor& dk, Tensor& dv, AttentionBiasGradients bias_gradients) {
  using namespace kernels::halo;
  check_call(backward_name, ranks, length, q, options);
  const SequenceShard shard = sequence_shard(length, ranks.rank, ranks.count);
  Problem problem = kernels::make_problem(backward_name, q, k, v, out, options);
  check_shard(backward_name, ranks, length, problem);
  kernels::add_gradients(backward_name, problem, dout, q, k, v, out, state.local, dq, dk, dv, bias_gradients);
  const DividedSequence layout = {length, problem.batch, problem.kv_heads};
  check_usage(
      state.keys_read.size() == static_cast<size_t>(ranks.count) * layout.pairs(),
      "[{}] state has {} key ranges, expected {}; the state must come from the forward call with the same inputs and "
      "options",
      backward_name, state.keys_read.size(), static_cast<size_t>(ranks.count) * layout.pairs());
  core::prepare_dispatch();
  const kernels::FlushDenormals flush;
  KeyRanges needs;
  for (const auto& [begin, end] : state.keys_read) needs.push_back({begin, end});
  RankRows inputs = {layout.shard(ranks, ranks.rank), {k, v}}, own = {inputs.range, {dk, dv}};
  if (options.log_decay) inputs.tensors.push_back(by_kv_head(*options.log_decay, layout));
  Tensor* const dlog_decay = bias_gradients.dlog_decay;
  if (dlog_decay != nullptr) own.tensors.push_back(by_kv_head(Tensor(dlog_decay->shape()), layout));
  RankRows window = window_of(needs, ranks, layout, inputs), gradients = window_of(needs, ranks, layout, own);
  fetch(ranks, layout, needs, inputs, window);

  AttentionOptions within = options;
  within.query_offset = shard.first - window.range.begin;
  if (options.log_decay) within.log_decay = by_head(window.tensors.back());
  Tensor dgates;
  if (dlog_decay != nullptr) {
    dgates = by_head(gradients.tensors.back());
    bias_gradients.dlog_decay = &dgates;
  }
  if (shard.rows > 0) {
    const Tensor &near_k = window.tensors[0], &near_v = window.tensors[1];
    problem = kernels::make_problem(backward_name, q, near_k, near_v, out, within);
    const Kernel* kernel = nullptr;
    const AttentionState local = state_within(state, window.range, problem, kernel);
    const kernels::BiasSums sums =
        kernels::add_gradients(backward_name, problem, dout, q, near_k, near_v, out, local, dq, gradients.tensors[0],
                               gradients.tensors[1], bias_gradients);
    for (kernels::Sequence& sequence : problem.sequences) {
      sequence.first_query_drawn = shard.first;
      sequence.first_key_drawn = window.range.begin;
    }
    if (!kernel->backward(problem, local, sums)) {
      // Infinity or NaN in dout. The float32 kernel visits every key that is seen. Keys that were not read are zero,
      // and their gradients go nowhere.
      kernels::vector_kernel().backward(problem, local, sums);
    }
    kernels::add_sink_gradient(problem, local, sums);
  }
  give_back(ranks, layout, needs, gradients, own);
  if (dlog_decay != nullptr) {
    const auto* const sums = own.tensors.back().data<float>();
    for (int64_t i = 0; i < dlog_decay->elements(); ++i) dlog_decay->data<float>()[i] += sums[i];
  }
}

}  // namespace alibi
