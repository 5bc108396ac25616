// attention() over a cache whose heads may begin at different keys. Heads that begin at the same key are computed
// together.
#include <algorithm>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/decode/decode.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/problem.h"
#include "core/check.h"

namespace alibi {
namespace {

/// Key/value heads [first, last), which hold the keys from `begin` on.
struct Run {
  int64_t first = 0, last = 0;
  int64_t begin = 0;
};

std::vector<Run> runs_of(const core::StateOf<KvCache>& cache) {
  std::vector<Run> runs;
  for (int64_t h = 0; h < cache.kv_heads; ++h) {
    if (!runs.empty() && runs.back().begin == cache.begin(h)) {
      runs.back().last = h + 1;
    } else {
      runs.push_back({h, h + 1, cache.begin(h)});
    }
  }
  return runs;
}

/// The keys of the run's heads as [batch, keys, heads, head_dim].
Tensor view_of(const core::StateOf<KvCache>& cache, const Tensor& rows, const Run& run) {
  return Tensor::view(
      static_cast<char*>(rows.raw()) +
          static_cast<size_t>(cache.row(0, run.first, run.begin) * cache.stride) * size_of(cache.dtype),
      {cache.batch, cache.length - run.begin, run.last - run.first, cache.head_dim}, cache.dtype,
      {cache.rows_of_batch() * cache.stride, cache.stride, (cache.capacity - run.begin) * cache.stride, 1});
}

/// The slopes of query heads [first, last) for each batch entry that has its own slopes.
std::vector<float> slopes_of(const std::vector<float>& all, int64_t batch, int64_t heads, int64_t first, int64_t last) {
  std::vector<float> some;
  const int64_t entries = static_cast<int64_t>(all.size()) / heads;
  for (int64_t b = 0; b < std::min(batch, entries); ++b) {
    some.insert(some.end(), all.begin() + b * heads + first, all.begin() + b * heads + last);
  }
  return some;
}

}  // namespace

void cached_attention(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state) {
  constexpr const char* operation = "cached_attention";
  kernels::check_cached_options(operation, options);
  const core::StateOf<KvCache>& held = core::state_of(cache);
  if (numbers_in(held.dtype) > 1) return attention_decode(q, cache, options, out, state);  // reads the blocks
  if (!held.has_evicted()) {
    const Tensor keys = cache.keys(), values = cache.values();
    AttentionOptions whole = options;
    if (held.gate_heads() > 0 && held.length > 0) {
      whole.log_decay =
          held.device == Device::cpu ? held.decays.gates(0) : held.bounds.log_decay.slice(1, 0, held.length);
    }
    // A state counts all blocks of keys, and serves a backward pass over all keys, so none is left out then.
    const int64_t begin =
        state != nullptr || held.device != Device::cpu
            ? 0
            : kernels::first_needed_key(kernels::make_problem(operation, q, keys, values, out, whole), held);
    if (begin == 0) return attention(q, keys, values, whole, out, state);
    AttentionOptions part = whole;
    part.query_offset = options.query_offset.value_or(held.length - q.size(1)) - begin;
    part.tolerance /= 2;
    if (whole.log_decay) part.log_decay = whole.log_decay->slice(1, begin, held.length);
    return attention(q, keys.slice(1, begin, held.length), values.slice(1, begin, held.length), part, out);
  }

  const std::vector<Run> runs = runs_of(held);
  check_usage(q.defined() && q.axes() == 4 && q.size(0) == held.batch && q.size(2) % held.kv_heads == 0,
              "[{}] q has shape {}, expected [{}, queries, a multiple of {}, {}]", operation, to_string(q.shape()),
              held.batch, held.kv_heads, held.head_dim);
  check_usage(out.defined() && out.shape() == q.shape(), "[{}] out has shape {}, expected {}", operation,
              to_string(out.shape()), to_string(q.shape()));
  const int64_t queries = q.size(1), heads = q.size(2), group = heads / held.kv_heads;
  check_usage(held.decays.heads() == 0 || held.decays.heads() == heads,
              "[{}] q has {} heads, expected {}, those of the gates in the cache", operation, heads,
              held.decays.heads());
  for (const std::vector<float>* slopes : {&options.alibi_slopes, &options.alibi_slopes_after}) {
    const auto count = static_cast<int64_t>(slopes->size());
    check_usage(count == 0 || count == heads || count == held.batch * heads,
                "[{}] options has {} slopes, expected one for each of {} heads", operation, count, heads);
  }
  const int64_t offset = options.query_offset.value_or(held.length - queries);
  const int64_t evicted = *std::max_element(held.begins.begin(), held.begins.end());
  check_usage(offset >= evicted,
              "[{}] the first query is at position {}, but keys before {} were evicted; expected a later position",
              operation, offset, evicted);
  if (state != nullptr) {
    *state = {};
    state->lse = Tensor::empty({held.batch, heads, queries});
  }
  for (const Run& run : runs) {
    const int64_t first = run.first * group, last = run.last * group;
    AttentionOptions part = options;
    part.query_offset = offset - run.begin;
    part.alibi_slopes = slopes_of(options.alibi_slopes, held.batch, heads, first, last);
    part.alibi_slopes_after = slopes_of(options.alibi_slopes_after, held.batch, heads, first, last);
    part.sinks = slopes_of(options.sinks, 1, heads, first, last);
    if (held.decays.heads() > 0) part.log_decay = held.decays.gates(run.begin).slice(2, first, last);
    if (part.buckets) part.buckets->table = part.buckets->table.slice(1, first, last);
    if (part.bias_by_distance) part.bias_by_distance = part.bias_by_distance->slice(1, first, last);
    Tensor part_out = out.slice(2, first, last);
    AttentionState part_state;
    attention(q.slice(2, first, last), view_of(held, held.k, run), view_of(held, held.v, run), part, part_out,
              state != nullptr ? &part_state : nullptr);
    if (state == nullptr) continue;
    state->lse.slice(1, first, last).copy_from(part_state.lse);
    state->stats.blocks_visited += part_state.stats.blocks_visited;
    state->stats.blocks_total += part_state.stats.blocks_total;
  }
}

}  // namespace alibi
