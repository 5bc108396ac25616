// Merging attention over two disjoint sets of keys:
//
//   lse = log(exp(lse_a) + exp(lse_b))      out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
#include <cmath>
#include <limits>
#include <utility>

#include "alibi/attention.h"
#include "attention/problem.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

void check_outputs(const Tensor& out_a, const Tensor& out_b, const Tensor& out) {
  for (const auto& [name, tensor] : {std::pair{"out_a", &out_a}, {"out_b", &out_b}, {"out", &std::as_const(out)}}) {
    check_usage(tensor->defined() && tensor->axes() == 4,
                "[merge_attention] {} has shape {}, expected [batch, queries, heads, head_dim]", name, tensor->shape());
    check_usage(
        tensor->dtype() == DType::float32 || tensor->dtype() == DType::bfloat16 || tensor->dtype() == DType::float16,
        "[merge_attention] {} is {}, expected float32, bfloat16 or float16", name, name_of(tensor->dtype()));
    check_usage(tensor->shape() == out_a.shape(), "[merge_attention] {} has shape {}, out_a has {}", name,
                tensor->shape(), out_a.shape());
    check_usage(tensor->size(3) <= 1 || tensor->stride(3) == 1,
                "[merge_attention] {} has strides {}, expected a unit inner stride", name, tensor->strides());
  }
}

void check_lse(const char* name, const Tensor& lse, const Shape& shape) {
  check_usage(lse.defined() && lse.shape() == shape && lse.dtype() == DType::float32 && lse.contiguous(),
              "[merge_attention] {} has shape {}, expected a contiguous float32 {}, [batch, heads, queries]", name,
              lse.shape(), shape);
}

/// Each element is read before it is written, so an output may be one of the inputs. It must not overlap an input in
/// any other way.
void check_same_or_apart(const char* output_name, const Tensor& output, const char* name, const Tensor& tensor) {
  const bool same = output.raw() == tensor.raw() && output.shape() == tensor.shape() &&
                    output.strides() == tensor.strides() && output.dtype() == tensor.dtype();
  if (!same) kernels::check_apart("merge_attention", output_name, output, name, tensor);
}

/// Row (b, query, head) of a tensor of any of the three types.
struct Row {
  Row(const Tensor& tensor, int64_t b, int64_t query, int64_t head)
      : data(tensor.raw()),
        dtype(tensor.dtype()),
        offset(b * tensor.stride(0) + query * tensor.stride(1) + head * tensor.stride(2)) {}

  float get(int64_t i) const { return kernels::load_value(dtype, data, offset + i); }
  void set(int64_t i, float value) const { kernels::store_value(dtype, data, offset + i, value); }

  void* data;
  DType dtype;
  int64_t offset;
};

}  // namespace

void merge_attention(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b, Tensor& out,
                     Tensor& lse) {
  check_outputs(out_a, out_b, out);
  const int64_t batch = out_a.size(0), queries = out_a.size(1), heads = out_a.size(2), head_dim = out_a.size(3);
  const Shape lse_shape = {batch, heads, queries};
  check_lse("lse_a", lse_a, lse_shape);
  check_lse("lse_b", lse_b, lse_shape);
  check_lse("lse", lse, lse_shape);
  const std::pair<const char*, const Tensor*> inputs[] = {
      {"out_a", &out_a}, {"out_b", &out_b}, {"lse_a", &lse_a}, {"lse_b", &lse_b}};
  for (const auto& [name, input] : inputs) {
    check_same_or_apart("out", out, name, *input);
    check_same_or_apart("lse", lse, name, *input);
  }
  kernels::check_apart("merge_attention", "out", out, "lse", lse);
  kernels::check_writable("merge_attention", "out", out);
  const float* const a = lse_a.data<float>();
  const float* const b = lse_b.data<float>();
  float* const merged = lse.data<float>();
  constexpr int64_t grain = 256;
  core::parallel_ranges(batch * heads * queries, grain, [&](int64_t begin, int64_t end) {
    const kernels::FlushDenormals flush;  // as in attention(), whatever the caller's setting
    for (int64_t i = begin; i < end; ++i) {
      constexpr double nothing = -std::numeric_limits<double>::infinity();
      const double log_a = static_cast<double>(a[i]), log_b = static_cast<double>(b[i]);
      // A part without keys has no weight, even if its output is NaN.
      const double max = log_a > log_b ? log_a : log_b;
      const double share_a = log_a == nothing ? 0 : std::exp(log_a - max);
      const double share_b = log_b == nothing ? 0 : std::exp(log_b - max);
      const double sum = share_a + share_b;
      const int64_t n = i / (heads * queries), head = i / queries % heads, query = i % queries;
      const Row from_a(out_a, n, query, head), from_b(out_b, n, query, head), to(out, n, query, head);
      for (int64_t d = 0; d < head_dim; ++d) {
        double value = 0;
        if (share_a != 0) value += share_a / sum * static_cast<double>(from_a.get(d));
        if (share_b != 0) value += share_b / sum * static_cast<double>(from_b.get(d));
        to.set(d, static_cast<float>(value));
      }
      merged[i] = sum == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(max + std::log(sum));
    }
  });
}

}  // namespace alibi
