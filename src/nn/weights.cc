#include "nn/weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/weights.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "nn/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

template <class T>
void widen_as(const T* x, int64_t count, float* y) {
  if constexpr (is_block<T>) {
    for (int64_t at = 0; at < count; at += T::size, ++x) widen_block(*x, y + at);
  } else {
    each_vector(count, [&](int64_t i, auto lanes) HWY_ATTR { store(load(x + i, lanes), y + i, lanes); });
  }
}

void widen(const void* x, DType dtype, int64_t count, float* y) {
  core::as_type(x, dtype, [&](const auto* elements) { widen_as(elements, count, y); });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/check.h"
#include "core/isa.h"
#include "core/parallel.h"

namespace alibi::nn {
namespace {
HWY_EXPORT(widen);
}  // namespace

Shape shape_of_weights(const Tensor& weights) {
  Shape shape = weights.shape();
  if (!shape.empty()) shape.back() *= numbers_in(weights.dtype());
  return shape;
}

void widen_row(const void* x, DType dtype, int64_t count, float* y) {
  core::prepare_dispatch();
  HWY_DYNAMIC_DISPATCH(widen)(x, dtype, count, y);
}

Tensor widened(const Tensor& weights) {
  check(is_weight_type(weights.dtype()) && weights.contiguous() && weights.device() == Device::cpu,
        "[weights] they are {} {} on '{}', expected a contiguous tensor of floating-point numbers in the CPU's memory",
        name_of(weights.dtype()), to_string(weights.shape()), name_of(weights.device()));
  Tensor result = Tensor::empty(shape_of_weights(weights));
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(widen);
  constexpr int64_t grain = 1 << 16;
  const auto* const from = static_cast<const char*>(weights.raw());
  float* const to = result.data<float>();
  core::parallel_ranges(result.elements(), grain, [&](int64_t begin, int64_t end) {
    kernel(from + bytes_of_row(weights.dtype(), begin), weights.dtype(), end - begin, to + begin);
  });
  return result;
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
