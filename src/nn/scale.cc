#include "nn/scale.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

constexpr int64_t kElementsPerTask = 16384;

/// body(x, y) for each element of two contiguous tensors of one floating-point type and shape.
template <class Body>
void each_pair(const char* operation, const Tensor& x, Tensor& y, const Body& body) {
  check_rows(operation, "y", y, rows_of(operation, "x", x), x.dtype());
  const auto run = [&]<class T>(const T* from, T* to) {
    core::parallel_ranges(x.elements(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = T(body(static_cast<float>(from[i]), static_cast<float>(to[i])));
    });
  };
  if (x.dtype() == DType::bfloat16) return run(x.data<bfloat16>(), y.data<bfloat16>());
  run(x.data<float>(), y.data<float>());
}

/// Calls copy(bytes of the part, bytes of the whole, count) for rows of `part` and the corresponding rows of `whole`,
/// starting at one of its columns.
template <class Copy>
void each_part(const char* operation, const Tensor& part, const Tensor& whole, int64_t first, const Copy& copy) {
  const Rows of_part = rows_of(operation, "the part", part), of_whole = rows_of(operation, "the whole", whole);
  check(part.dtype() == whole.dtype() && of_part.rows == of_whole.rows && first >= 0 &&
            first + of_part.features <= of_whole.features,
        "[{}] columns from {} on of {} {} do not fit {} {}", operation, first, name_of(whole.dtype()),
        to_string(whole.shape()), name_of(part.dtype()), to_string(part.shape()));
  const auto size = static_cast<int64_t>(size_of(part.dtype()));
  const int64_t bytes = of_part.features * size, stride = of_whole.features * size;
  auto* const parts = static_cast<std::byte*>(part.raw());
  auto* const wholes = static_cast<std::byte*>(whole.raw()) + first * size;
  core::parallel_ranges(of_part.rows, rows_per_task(of_part.features), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      copy(parts + row * bytes, wholes + row * stride, static_cast<size_t>(bytes));
    }
  });
}

}  // namespace

void scale(const Tensor& x, float factor, Tensor& y) {
  each_pair("scale", x, y, [factor](float value, float) { return factor * value; });
}

void clamp(Tensor& x, float limit) {
  check(limit > 0, "[clamp] the limit is {}, expected a number above 0", limit);
  // NaN stays NaN.
  each_pair("clamp", x, x, [limit](float value, float) { return std::clamp(value, -limit, limit); });
}

void clamp_backward(const Tensor& y, float limit, Tensor& dy) {
  each_pair("clamp_backward", y, dy,
            [rounded = y.dtype() == DType::bfloat16 ? static_cast<float>(bfloat16(limit)) : limit](
                float value, float gradient) { return std::abs(value) < rounded ? gradient : 0; });
}

void copy_columns(const Tensor& x, int64_t first, Tensor& y) {
  each_part("copy_columns", y, x, first,
            [](std::byte* part, const std::byte* whole, size_t bytes) { std::memcpy(part, whole, bytes); });
}

void set_columns(const Tensor& x, int64_t first, Tensor& y) {
  each_part("set_columns", x, y, first,
            [](const std::byte* part, std::byte* whole, size_t bytes) { std::memcpy(whole, part, bytes); });
}

}  // namespace alibi::nn
