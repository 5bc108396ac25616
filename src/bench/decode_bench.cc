#include "bench/decode_bench.h"

#include "alibi/runtime.h"
#include "bench/timing.h"
#include "core/check.h"

namespace alibi::bench {
namespace {

/// Number of random keys, which the cache repeats. Only the norms of keys matter, and making a million different ones
/// would take longer than the measurement.
constexpr int64_t keys_at_once = 1 << 14;

/// Batch of 1 with one query.
AttentionInputs chunk_inputs(const AttentionBenchSettings& settings, DType dtype) {
  return random_inputs(settings.shape, keys_at_once, settings.seed).to(dtype);
}

}  // namespace

DecodeBench::DecodeBench(const AttentionBenchSettings& settings, DType dtype)
    : settings_(settings),
      inputs_(chunk_inputs(settings, dtype)),
      cache_(1, settings.shape.key_heads(), settings.shape.head_dim, dtype),
      other_(1, settings.shape.key_heads(), settings.shape.head_dim, dtype),
      memory_(settings.memory_bytes) {
  constexpr int64_t few_keys = 512;
  const AttentionInputs part = inputs_.first(few_keys);
  other_.append(part.k, part.v, part.options.log_decay);
}

void DecodeBench::fill(int64_t context) {
  check(context >= cache_.length(), "[bench] the context is {} after {}, expected rising contexts", context,
        cache_.length());
  cache_.reserve(context);
  while (cache_.length() < context) {
    const AttentionInputs part = inputs_.first(std::min(keys_at_once, context - cache_.length()));
    cache_.append(part.k, part.v, part.options.log_decay);
  }
}

std::vector<AttentionPoint> DecodeBench::measure(int64_t context) {
  fill(context);
  const DType dtype = inputs_.q.dtype();
  const Tensor q = inputs_.q.slice(1, 0, 1);
  Tensor out = Tensor::empty(q.shape(), dtype);
  const auto row_bytes =
      static_cast<double>(2 * cache_.kv_heads() * cache_.head_dim()) * static_cast<double>(size_of(dtype));

  std::vector<AttentionPoint> points;
  std::vector<Work> cold, warm;
  for (const float tolerance : settings_.tolerances_of(dtype)) {
    AttentionPoint point{.pass = Pass::decode, .dtype = dtype, .length = context, .tolerance = tolerance};
    AttentionOptions options = inputs_.options;
    options.tolerance = tolerance;
    options.log_decay.reset();  // the cache has them
    AttentionState state;
    reset_peak_tensor_bytes();
    const int64_t tensors = tensor_bytes();
    attention_decode(q, cache_, options, out, &state);
    point.peak_bytes = peak_tensor_bytes() - tensors;
    point.visited = static_cast<double>(state.stats.blocks_visited) / static_cast<double>(state.stats.blocks_total);
    point.bytes_read = point.visited * row_bytes * static_cast<double>(context);
    point.flops = 4 * static_cast<double>(q.elements()) * static_cast<double>(context);
    const auto run = [&, options] { attention_decode(q, cache_, options, out); };
    cold.push_back({.run = run, .prepare = [&, options] {
                      memory_.read();
                      attention_decode(q, other_, options, out);
                    }});
    warm.push_back({.run = run});
    points.push_back(std::move(point));
  }
  // Flushing the caches takes longer than most calls.
  run_in_turns(cold, {.seconds = settings_.seconds, .min_runs = 3, .max_runs = 11});
  run_in_turns(warm, {.seconds = settings_.seconds / 4, .min_runs = 5, .max_runs = 1000});
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].seconds = median(cold[i].seconds);
    points[i].best_seconds = least(cold[i].seconds);
    points[i].runs = static_cast<int64_t>(cold[i].seconds.size());
    points[i].warm_seconds = median(warm[i].seconds);
  }
  return points;
}

}  // namespace alibi::bench
