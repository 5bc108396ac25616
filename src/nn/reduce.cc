#include "nn/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/reduce.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

void sum_partials(const float* partials, int64_t parts, int64_t stride, int64_t n, float* out) {
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
    V total = load(partials + i, lanes);
    for (int64_t p = 1; p < parts; ++p) total = hn::Add(total, load(partials + p * stride + i, lanes));
    store(hn::Add(load(out + i, lanes), total), out + i, lanes);
  });
}

template <class T>
void sum_rows_as(const T* x, int64_t rows, int64_t row_stride, int64_t features, float* sums) {
  std::memset(sums, 0, static_cast<size_t>(features) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row) {
    const T* values = x + row * row_stride;
    each_vector(features, [&](int64_t i, auto lanes) HWY_ATTR {
      store(hn::Add(load(sums + i, lanes), load(values + i, lanes)), sums + i, lanes);
    });
  }
}

void sum_rows(const void* x, DType dtype, int64_t rows, int64_t row_stride, int64_t features, float* sums) {
  if (dtype == DType::bfloat16) {
    sum_rows_as(static_cast<const bfloat16*>(x), rows, row_stride, features, sums);
  } else {
    sum_rows_as(static_cast<const float*>(x), rows, row_stride, features, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {

HWY_EXPORT(sum_partials);
HWY_EXPORT(sum_rows);

int64_t rows_per_partial(int64_t rows) { return std::max<int64_t>(64, core::ceil_div(rows, 256)); }

void add_partials(const float* partials, int64_t parts, int64_t n, float* out) {
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_partials);
  const int64_t grain = std::max<int64_t>(256, 65536 / parts);
  core::parallel_ranges(
      n, grain, [&](int64_t begin, int64_t end) { kernel(partials + begin, parts, n, end - begin, out + begin); });
}

void add_column_sums(const Tensor& x, Tensor& sums) {
  check(x.axes() == 2 && is_floating(x.dtype()) && (x.size(1) <= 1 || x.stride(1) == 1),
        "[column_sums] x is {} {} with strides {}, expected two axes and a unit inner stride", name_of(x.dtype()),
        to_string(x.shape()), to_string(x.strides()));
  const int64_t rows = x.size(0), features = x.size(1);
  check_vector("column_sums", "sums", sums, features, DType::float32);
  if (rows == 0 || features == 0) return;
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_rows);
  const int64_t step = rows_per_partial(rows);
  const Tensor partials = Tensor::empty({core::ceil_div(rows, step), features});
  core::parallel_ranges(rows, step, [&](int64_t begin, int64_t end) {
    const std::byte* first =
        static_cast<const std::byte*>(x.raw()) + static_cast<size_t>(begin * x.stride(0)) * size_of(x.dtype());
    kernel(first, x.dtype(), end - begin, x.stride(0), features, partials.data<float>() + begin / step * features);
  });
  add_partials(partials.data<float>(), partials.size(0), features, sums.data<float>());
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
