#include "nn/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/elementwise.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include <type_traits>

#include "nn/philox-inl.h"
#include "nn/simd-inl.h"

#ifndef ALIBI_NN_ELEMENTWISE_ARRAYS_
#define ALIBI_NN_ELEMENTWISE_ARRAYS_
namespace alibi::nn {
/// Each is float32 or bfloat16.
struct Arrays {
  const void* a;
  const void* b;
  void* y;
  DType a_type, b_type, y_type;
};
}  // namespace alibi::nn
#endif

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// Calls body with the array from element `begin` on, cast to its data type.
template <class Void, class Body>
HWY_INLINE void with_type(Void* array, DType dtype, int64_t begin, const Body& body) {
  using Float = std::conditional_t<std::is_const_v<Void>, const float, float>;
  using Bfloat16 = std::conditional_t<std::is_const_v<Void>, const bfloat16, bfloat16>;
  dtype == DType::bfloat16 ? body(static_cast<Bfloat16*>(array) + begin) : body(static_cast<Float*>(array) + begin);
}

template <class A, class B, class Y>
void add_as(const A* a, const B* b, int64_t n, Y* y) {
  each_vector(
      n, [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Add(load(a + i, lanes), load(b + i, lanes)), y + i, lanes); });
}
void add_range(const Arrays& t, int64_t begin, int64_t end) {
  with_type(t.a, t.a_type, begin, [&](const auto* a) {
    with_type(t.b, t.b_type, begin,
              [&](const auto* b) { with_type(t.y, t.y_type, begin, [&](auto* y) { add_as(a, b, end - begin, y); }); });
  });
}

template <class X, class Y>
void convert_as(const X* x, int64_t n, Y* y) {
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR { store(load(x + i, lanes), y + i, lanes); });
}
void convert_range(const Arrays& t, int64_t begin, int64_t end) {
  with_type(t.a, t.a_type, begin,
            [&](const auto* x) { with_type(t.y, t.y_type, begin, [&](auto* y) { convert_as(x, end - begin, y); }); });
}

template <class X, class Y>
void dropout_as(const X* x, const Dropout& dropout, int64_t begin, int64_t end, Y* y) {
  constexpr int64_t piece = 512;
  alignas(64) float factors[piece];
  for (int64_t i = begin; i < end; i += piece, x += piece, y += piece) {
    const int64_t count = end - i < piece ? end - i : piece;
    dropout_factors(dropout, i, count, factors);
    each_vector(count, [&](int64_t j, auto lanes)
                           HWY_ATTR { store(drop(load(factors + j, lanes), load(x + j, lanes)), y + j, lanes); });
  }
}
void dropout_range(const Arrays& t, const Dropout& dropout, int64_t begin, int64_t end) {
  with_type(t.a, t.a_type, begin, [&](const auto* x) {
    with_type(t.y, t.y_type, begin, [&](auto* y) { dropout_as(x, dropout, begin, end, y); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(add_range);
HWY_EXPORT(convert_range);
HWY_EXPORT(dropout_range);

/// Elements per task.
constexpr int64_t grain = 16384;

void check_like(const char* operation, const char* name, const Tensor& tensor, const Tensor& other) {
  check(is_floating(tensor.dtype()) && is_floating(other.dtype()), "[{}] elements are {}, expected floating point",
        operation, name_of(is_floating(other.dtype()) ? tensor.dtype() : other.dtype()));
  check(tensor.shape() == other.shape(), "[{}] {} has shape {}, expected {}", operation, name,
        to_string(tensor.shape()), to_string(other.shape()));
  check(tensor.contiguous() && other.contiguous(), "[{}] {} has strides {}, expected contiguous tensors", operation,
        name, to_string(tensor.strides()));
}

void drop(const char* operation, const Tensor& x, float probability, const core::Random& random, Tensor& y) {
  check_like(operation, "the result", y, x);
  const Dropout dropout = dropout_of(operation, probability, random);
  const Arrays arrays{x.raw(), nullptr, y.raw(), x.dtype(), {}, y.dtype()};
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_range);
  core::parallel_ranges(x.elements(), grain, [&](int64_t begin, int64_t end) { kernel(arrays, dropout, begin, end); });
}

template <class Draw>
void fill_by(const char* operation, Tensor& y, const Draw& draw) {
  check_vector(operation, "y", y, y.elements(), DType::float32);
  float* to = y.data<float>();
  core::parallel_ranges(y.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = draw(static_cast<uint64_t>(i));
  });
}

}  // namespace

void add(const Tensor& a, const Tensor& b, Tensor& y) {
  check_like("add", "b", b, a);
  check_like("add", "y", y, a);
  const Arrays arrays{a.raw(), b.raw(), y.raw(), a.dtype(), b.dtype(), y.dtype()};
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_range);
  core::parallel_ranges(a.elements(), grain, [&](int64_t begin, int64_t end) { kernel(arrays, begin, end); });
}

void convert(const Tensor& x, Tensor& y) {
  check_like("convert", "y", y, x);
  const Arrays arrays{x.raw(), nullptr, y.raw(), x.dtype(), {}, y.dtype()};
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(convert_range);
  core::parallel_ranges(x.elements(), grain, [&](int64_t begin, int64_t end) { kernel(arrays, begin, end); });
}

void convert_row(const void* x, DType x_type, int64_t count, void* y, DType y_type) {
  core::prepare_dispatch();
  HWY_DYNAMIC_DISPATCH(convert_range)({x, nullptr, y, x_type, {}, y_type}, 0, count);
}

void dropout(const Tensor& x, float probability, const core::Random& random, Tensor& y) {
  drop("dropout", x, probability, random, y);
}

void dropout_backward(const Tensor& dy, float probability, const core::Random& random, Tensor& dx) {
  drop("dropout_backward", dy, probability, random, dx);
}

void exp2(const Tensor& x, float least, float most, Tensor& y) {
  check_vector("exp2", "x", x, x.elements(), DType::float32);
  check_vector("exp2", "y", y, x.elements(), DType::float32);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) to[i] = std::exp2(std::clamp(from[i], least, most));
}

void exp2_backward(const Tensor& dy, const Tensor& x, float least, float most, Tensor& dx) {
  check_vector("exp2_backward", "x", x, x.elements(), DType::float32);
  check_vector("exp2_backward", "dy", dy, x.elements(), DType::float32);
  check_vector("exp2_backward", "dx", dx, x.elements(), DType::float32);
  const float* at = x.data<float>();
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (least <= at[i] && at[i] <= most) to[i] += std::numbers::ln2_v<float> * std::exp2(at[i]) * from[i];
  }
}

void fill_normal(const core::Random& random, float deviation, Tensor& y) {
  fill_by("fill_normal", y, [&](uint64_t i) { return deviation * random.normal(i); });
}

void fill_uniform(const core::Random& random, float bound, Tensor& y) {
  fill_by("fill_uniform", y, [&](uint64_t i) { return bound * (2 * random.uniform(i) - 1); });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
