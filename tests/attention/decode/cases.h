// Cases of cached decoding, checked against the float64 reference.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/gates.h"
#include "testing.h"

namespace alibi::test {

enum class Bias { none, linear, buckets, by_distance };

struct DecodeCase {
  int64_t batch = 1, keys = 1, queries = 1;
  int64_t heads = 2, kv_heads = 2, head_dim = 16;
  Bias bias = Bias::linear;
  DType dtype = DType::float32;
  bool causal = true;
  int64_t window = 0;
  std::optional<int64_t> offset = {};  // absent: the last rows
  float tolerance = 0;
  float softcap = 0;
  std::vector<float> sinks = {};
  std::optional<Gates> gates = {};

  AttentionOptions options() const {
    AttentionOptions result;
    result.softcap = softcap;
    result.sinks = sinks;
    result.causal = causal;
    result.sliding_window = window;
    result.query_offset = offset;
    result.tolerance = tolerance;
    if (bias == Bias::linear) result.alibi_slopes = slopes(static_cast<int>(heads));
    if (bias == Bias::buckets) result.buckets = BucketedBias{random_tensor({32, heads}, 5), 128};
    if (bias == Bias::by_distance) result.bias_by_distance = random_tensor({causal ? 70 : 141, heads}, 6);
    return result;
  }
  /// The same options with the position as a number, and without the skip rule.
  AttentionOptions plain_options() const {
    AttentionOptions result = options();
    if (!offset) result.query_offset = keys - queries;
    result.tolerance = 0;
    if (gates) result.log_decay = log_decay();
    return result;
  }
  /// The gates of the keys; undefined without gates.
  Tensor log_decay() const { return gates ? random_gates({batch, keys, heads}, 7, *gates) : Tensor(); }
  std::string name() const {
    const char* const biases[] = {"none", "linear", "buckets", "by distance"};
    return fmt::format(
        "batch {} keys {} queries {} heads {}/{} dim {} {} {} causal {} window {} offset {} tolerance {} softcap {} "
        "sinks {} gates {}",
        batch, keys, queries, heads, kv_heads, head_dim, biases[static_cast<int>(bias)], name_of(dtype), causal, window,
        offset.value_or(keys - queries), tolerance, softcap, sinks.size(), gates ? static_cast<int>(*gates) : -1);
  }
};

struct DecodeInputs {
  explicit DecodeInputs(const DecodeCase& c, float scale = 1)
      : q(random_tensor({c.batch, c.queries, c.heads, c.head_dim}, 1, scale, c.dtype)),
        k(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, 2, scale, c.dtype)),
        v(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, 3, 1, c.dtype)) {}
  Tensor q, k, v;
};

/// A cache filled in pieces of different sizes: a prompt, then token by token, then a chunk.
inline KvCache filled_cache(const Tensor& k, const Tensor& v) {
  KvCache cache(k.size(0), k.size(2), k.size(3), k.dtype());
  const int64_t keys = k.size(1);
  const int64_t pieces[] = {keys / 2, 1, 1, 1, keys};
  for (const int64_t piece : pieces) {
    const int64_t begin = cache.length(), end = std::min(keys, begin + piece);
    cache.append(k.slice(1, begin, end), v.slice(1, begin, end));
  }
  return cache;
}

/// Decodes and compares output and log-sum-exp with the reference, within rounding.
inline void expect_decodes(const DecodeCase& c) {
  SCOPED_TRACE(c.name());
  const DecodeInputs in(c);
  const KvCache cache = filled_cache(in.k, in.v);
  ASSERT_EQ(cache.length(), c.keys);
  Tensor out = Tensor::empty(in.q.shape(), c.dtype);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  AttentionState state;
  attention_decode(in.q, cache, c.options(), out, &state);
  std::vector<double> expected, lse;
  attention_reference(in.q, in.k, in.v, c.plain_options(), expected, &lse);
  const double tolerance = c.dtype == DType::float32 ? 3e-6 : 0x1p-8;
  EXPECT_TRUE(max_abs_diff(out, expected) <= tolerance * std::max(1.0, max_abs(expected)))
      << "differs by " << max_abs_diff(out, expected);
  EXPECT_TRUE(max_abs_diff(state.lse, lse) <= 3e-6 * std::max(1.0, max_abs(expected)))
      << "log-sum-exp differs by " << max_abs_diff(state.lse, lse);
}

}  // namespace alibi::test
