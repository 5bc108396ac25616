// A call of attention with checked arguments, as plain numbers and pointers. All kernels work on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "alibi/attention.h"
#include "attention/bias.h"

namespace alibi::kernels {

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Rows or blocks of rows, [begin, end).
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

/// A [batch, rows, heads, head_dim] tensor. Strides count elements; the innermost stride is 1.
struct TensorView {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  /// The head_dim values of a row.
  template <class T>
  T* at(int64_t batch, int64_t row, int64_t head) const {
    return static_cast<T*>(data) + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

/// The queries and keys of a batch entry or of a packed sequence. Query row query_begin + i has position
/// query_offset + i. Key row key_begin + j has position j.
struct Sequence {
  int64_t batch = 0;
  int64_t query_begin = 0, queries = 0;
  int64_t key_begin = 0, keys = 0;
  int64_t query_offset = 0;
};

struct Problem {
  DType dtype = DType::float32;              ///< data type of q, k, v, out and their gradients; not int32
  Device device = Device::cpu;               ///< device of all tensors
  int64_t batch = 0, queries = 0, keys = 0;  ///< number of rows of the tensors
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  TensorView q, k, v, out;
  TensorView dout, dq, dk, dv;  ///< used only in the backward pass
  std::vector<Sequence> sequences;

  float scale = 0;
  bool causal = true;
  int64_t window = 0;
  float dropout = 0;
  uint64_t dropout_seed = 0;
  float tolerance = 0;

  std::shared_ptr<const Biases> biases;

  int64_t group() const { return heads / kv_heads; }
  bool has_table() const { return biases->rows > 0; }

  HeadBias bias(int64_t b, int64_t head) const {
    HeadBias result;
    const auto at = static_cast<size_t>(b * heads + head);
    result.slope_before = biases->slopes_before[at];
    result.slope_after = biases->slopes_after[at];
    if (has_table()) {
      result.farthest = biases->farthest;
      result.table = biases->table.data() + head * (2 * result.farthest + 1) + result.farthest;
    }
    if (window > 0) {
      result.least = 1 - window;
      result.most = window - 1;
    }
    constexpr float closed = std::numeric_limits<float>::infinity();
    if (causal || result.slope_after == closed) result.least = 0;
    if (result.slope_before == closed) result.most = 0;
    return result;
  }

  /// The keys that at least one of the queries at positions [first, last] of a sequence sees.
  static Range keys_seen(const HeadBias& bias, int64_t first, int64_t last, int64_t keys) {
    const int64_t begin = std::clamp<int64_t>(first - bias.most, 0, keys);
    const int64_t end = std::clamp<int64_t>(last - bias.least + 1, begin, keys);
    return {begin, end};
  }

  /// Distance from a position to the nearest key, or 0 if the position is that of a key. Linear biases are counted from
  /// the nearest key, so that scores keep their precision at any offset. This shifts the scores of a row by a constant,
  /// which only the log-sum-exp has to add back.
  static int64_t nearest(int64_t position, int64_t keys) {
    return std::max<int64_t>({0, position - (keys - 1), -position});
  }
};

/// Tensors to which a backward pass adds the gradients of the bias; null if the caller does not want them.
struct BiasSums {
  float* dtable = nullptr;   ///< [rows of the table, heads], contiguous
  float* dslopes = nullptr;  ///< [heads], or [batch * heads] if slopes_per_batch
};

/// Throws Error if the CPU has no kernels for this data type of q.
void check_cpu_type(const char* operation, DType dtype);

/// Checks tensors and options. Throws Error that names the argument. Messages begin with `operation`.
Problem make_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const AttentionOptions& options);

/// Throws Error if an output begins where another tensor begins, or if both are contiguous and share memory.
/// Interleaved views are accepted, because q, k and v are often parts of one product.
void check_apart(const char* operation, const char* output_name, const Tensor& output, const char* name,
                 const Tensor& tensor);

/// Checks the other arguments of a backward pass and adds them to the problem.
BiasSums add_gradients(const char* operation, Problem& problem, const Tensor& dout, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const AttentionState& state, Tensor& dq, Tensor& dk,
                       Tensor& dv, const AttentionBiasGradients& bias_gradients);

}  // namespace alibi::kernels
