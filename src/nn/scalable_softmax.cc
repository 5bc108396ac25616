#include "nn/scalable_softmax.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi::nn {
namespace {

constexpr int64_t kRowsPerTask = 64;

void check_queries(const char* operation, const Tensor& q, const ScoreScale& scale) {
  check(q.axes() == 4 && (q.dtype() == DType::float32 || q.dtype() == DType::bfloat16) &&
            (q.stride(3) == 1 || q.size(3) <= 1) && std::ssize(scale.of_heads) == q.size(2) && scale.position >= 0,
        "[{}] q is {} {} with {} factors from position {}, expected float32 or bfloat16 [batch, length, heads, "
        "head_dim] with a factor for each head and a unit inner stride",
        operation, name_of(q.dtype()), to_string(q.shape()), scale.of_heads.size(), scale.position);
}

float log_of_keys(const ScoreScale& scale, int64_t row) {
  const int64_t keys = scale.position + row + 1;
  return static_cast<float>(std::log(static_cast<double>(scale.window > 0 ? std::min(keys, scale.window) : keys)));
}

/// The values of one head of a row, [head_dim].
template <class T>
T* head_of(const Tensor& q, int64_t b, int64_t row, int64_t head) {
  return q.data<T>() + b * q.stride(0) + row * q.stride(1) + head * q.stride(2);
}

template <class T>
void scale_rows(Tensor& q, const ScoreScale& scale) {
  core::parallel_ranges(q.size(1), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float log_keys = log_of_keys(scale, row);
      for (int64_t b = 0; b < q.size(0); ++b) {
        for (int64_t head = 0; head < q.size(2); ++head) {
          const float factor = scale.of_heads[static_cast<size_t>(head)] * log_keys;
          T* const at = head_of<T>(q, b, row, head);
          for (int64_t d = 0; d < q.size(3); ++d) at[d] = T(factor * static_cast<float>(at[d]));
        }
      }
    }
  });
}

/// The sum of dq * q over one head.
template <class T>
double sum_of_products(const Tensor& q, const Tensor& dq, int64_t head) {
  double sum = 0;
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t row = 0; row < q.size(1); ++row) {
      const T* const x = head_of<T>(q, b, row, head);
      const T* const dx = head_of<T>(dq, b, row, head);
      float of_row = 0;
      for (int64_t d = 0; d < q.size(3); ++d) of_row += static_cast<float>(x[d]) * static_cast<float>(dx[d]);
      sum += static_cast<double>(of_row);
    }
  }
  return sum;
}

}  // namespace

void scale_queries(Tensor& q, const ScoreScale& scale) {
  check_queries("scale_queries", q, scale);
  q.dtype() == DType::bfloat16 ? scale_rows<bfloat16>(q, scale) : scale_rows<float>(q, scale);
}

// With y = s log(n) q, the gradient of s is the sum of dy log(n) q, which is that of dy y / s.
void scale_queries_backward(const Tensor& q, const ScoreScale& scale, Tensor& dq, Tensor& ds) {
  check_queries("scale_queries_backward", q, scale);
  check(dq.shape() == q.shape() && dq.dtype() == q.dtype() && ds.shape() == Shape{q.size(2)} &&
            ds.dtype() == DType::float32,
        "[scale_queries_backward] dq is {} and ds is {}, expected {} and [{}]", to_string(dq.shape()),
        to_string(ds.shape()), to_string(q.shape()), q.size(2));
  core::parallel_for(q.size(2), [&](int64_t head) {
    const float s = scale.of_heads[static_cast<size_t>(head)];
    if (s == 0) return;
    const double sum =
        q.dtype() == DType::bfloat16 ? sum_of_products<bfloat16>(q, dq, head) : sum_of_products<float>(q, dq, head);
    ds.data<float>()[head] += static_cast<float>(sum / static_cast<double>(s));
  });
  scale_queries(dq, scale);
}

}  // namespace alibi::nn
