// One description of a call drives every attention test: shapes and options, the tensors, and the same formula written
// plainly in the tensors' own precision, whose error is the yardstick for the kernels'.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "alibi/attention.h"
#include "testing.h"

namespace alibi::test {

struct AttentionCase {
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, head_dim = 16;
  AttentionOptions options = {};
  DType dtype = DType::float32;
  uint64_t seed = 1;
  float input_scale = 1;

  std::string name() const {
    return fmt::format(
        "batch {} queries {} keys {} heads {}/{} head_dim {} {} causal {} offset {} window {}+{} slopes {}+{} buckets "
        "{} "
        "distances {} "
        "softcap {} sinks {} dropout {} tolerance {} sequences {} seed {}",
        batch, queries, keys, heads, kv_heads, head_dim, name_of(dtype), options.causal,
        options.query_offset.value_or(keys - queries), options.sliding_window, options.sliding_window_after,
        options.alibi_slopes.size(), options.alibi_slopes_after.size(), options.buckets.has_value(),
        options.bias_by_distance ? options.bias_by_distance->size(0) : 0, options.softcap, options.sinks.size(),
        options.dropout_p, options.tolerance, options.cu_seqlens_q.size(), seed);
  }
};

/// Random inputs, and outputs full of NaN.
struct AttentionTensors {
  explicit AttentionTensors(const AttentionCase& c)
      : q(random_tensor({c.batch, c.queries, c.heads, c.head_dim}, c.seed, c.input_scale, c.dtype)),
        k(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, c.seed + 1, c.input_scale, c.dtype)),
        v(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, c.seed + 2, 1, c.dtype)),
        dout(random_tensor({c.batch, c.queries, c.heads, c.head_dim}, c.seed + 3, 1, c.dtype)),
        out(Tensor::empty(q.shape(), c.dtype)),
        dq(Tensor::empty(q.shape(), c.dtype)),
        dk(Tensor::empty(k.shape(), c.dtype)),
        dv(Tensor::empty(v.shape(), c.dtype)) {
    for (Tensor* output : {&out, &dq, &dk, &dv}) output->fill(std::numeric_limits<float>::quiet_NaN());
  }

  void forward(const AttentionOptions& options) { attention(q, k, v, options, out, &state); }
  void backward(const AttentionOptions& options, AttentionBiasGradients bias = {}) {
    attention_backward(dout, q, k, v, out, state, options, dq, dk, dv, bias);
  }

  Tensor q, k, v, dout;
  Tensor out, dq, dk, dv;
  AttentionState state;
};

/// T5 buckets with a random table.
inline BucketedBias random_buckets(int64_t heads, uint64_t seed, int64_t num_buckets = 32, int max_distance = 128) {
  return {.table = random_tensor({num_buckets, heads}, seed), .max_distance = max_distance};
}

/// A random bias at each of a number of distances, on both sides if the case is not causal.
inline Tensor random_bias_by_distance(int64_t heads, int64_t distances, bool causal, uint64_t seed) {
  return random_tensor({causal ? distances : 2 * distances - 1, heads}, seed);
}

/// The table of a case's bias; undefined if it has none.
inline Tensor table_of(const AttentionOptions& options) {
  return options.buckets ? options.buckets->table : options.bias_by_distance.value_or(Tensor());
}

/// Cases with tables by distance: shorter than the keys, as long, and longer.
inline std::vector<AttentionCase> cases_by_distance() {
  std::vector<AttentionCase> cases;
  for (const int64_t distances : {1, 2, 33, 64, 181, 400}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = 150, .keys = 170, .heads = 4, .kv_heads = 2, .head_dim = 16};
      c.options.bias_by_distance = random_bias_by_distance(4, distances, causal, 23);
      c.options.causal = causal;
      c.options.query_offset = 11;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<float> random_sinks(int64_t heads, uint64_t seed);

/// Random cases with every kind of bias, direction, offset, grouping and odd size; the same in every run.
std::vector<AttentionCase> random_cases(int count, uint64_t seed);

/// Random cases with every option that gates may be combined with.
std::vector<AttentionCase> cases_with_gates(int count, uint64_t seed);

/// The formula written plainly in float32. For bfloat16 the weights are rounded before they are multiplied by the
/// values, as separate operations in that type would do. Gradients are optional. No dropout, no packed sequences.
struct PlainResult {
  std::vector<double> out, dq, dk, dv;
};
PlainResult plain_attention(const AttentionCase& c, const AttentionTensors& tensors, bool gradients);

/// T5 biases with few and many buckets, near and far.
inline std::vector<AttentionCase> cases_of_every_max_distance() {
  std::vector<AttentionCase> cases;
  for (const auto& [buckets, distance] :
       std::vector<std::pair<int64_t, int>>{{32, 128}, {4, 3}, {8, 20}, {12, 31}, {40, 33}, {64, 200}, {4, 1000}}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = 150, .keys = 170, .heads = 2, .kv_heads = 1, .head_dim = 8};
      c.options.buckets = random_buckets(2, 22, causal ? buckets : 2 * buckets, distance);
      c.options.causal = causal;
      c.options.query_offset = 11;
      cases.push_back(c);
    }
  }
  return cases;
}

inline std::vector<AttentionCase> cases_of_either_sign() {
  std::vector<AttentionCase> cases;
  for (const float scale : {-0.5f, -1e-3f, 1e-3f, 2.0f}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      AttentionCase c{.queries = 70, .keys = 70, .heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = dtype};
      c.options.alibi_slopes = slopes(2);
      c.options.softmax_scale = scale;
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace alibi::test
