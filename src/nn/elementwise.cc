#include "nn/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/elementwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "nn/philox-inl.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

template <class T>
void add_as(const T* a, const T* b, int64_t n, T* y) {
  each_vector(
      n, [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Add(load(a + i, lanes), load(b + i, lanes)), y + i, lanes); });
}
void add_range(const void* a, const void* b, void* y, DType dtype, int64_t begin, int64_t end) {
  dtype == DType::bfloat16 ? add_as(static_cast<const bfloat16*>(a) + begin, static_cast<const bfloat16*>(b) + begin,
                                    end - begin, static_cast<bfloat16*>(y) + begin)
                           : add_as(static_cast<const float*>(a) + begin, static_cast<const float*>(b) + begin,
                                    end - begin, static_cast<float*>(y) + begin);
}

template <class T>
void scale_as(T* y, int64_t n, float factor) {
  const V f = set(factor);
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Mul(f, load(y + i, lanes)), y + i, lanes); });
}
void scale_range(void* y, DType dtype, float factor, int64_t begin, int64_t end) {
  dtype == DType::bfloat16 ? scale_as(static_cast<bfloat16*>(y) + begin, end - begin, factor)
                           : scale_as(static_cast<float*>(y) + begin, end - begin, factor);
}

/// begin is a multiple of dropout_grain.
template <class T>
void dropout_as(const T* x, const Random& random, uint32_t threshold, float factor, int64_t begin, int64_t end, T* y) {
  const Words words;
  const auto lanes = static_cast<int64_t>(hn::Lanes(words));
  const auto limit = hn::Set(words, threshold);
  const V kept = set(factor);
  alignas(64) float factors[4 * hn::MaxLanes(Floats())];
  const auto factor_of = [&](hn::Vec<Words> word) HWY_ATTR {
    // random.uniform(i) >= probability: the upper 24 bits of the word against the threshold.
    const auto keeps = hn::Not(hn::Lt(hn::ShiftRight<8>(word), limit));
    return hn::IfThenElseZero(hn::RebindMask(Floats(), keeps), kept);
  };
  for (int64_t i = begin; i < end; i += 4 * lanes) {
    const PhiloxBlocks blocks = philox(random.seed(), random.stream(), static_cast<uint64_t>(i) / 4);
    hn::StoreInterleaved4(factor_of(blocks.word0), factor_of(blocks.word1), factor_of(blocks.word2),
                          factor_of(blocks.word3), Floats(), factors);
    const int64_t count = end - i < 4 * lanes ? end - i : 4 * lanes;
    each_vector(count, [&](int64_t j, auto part) HWY_ATTR {
      // A dropped infinity must give 0, not NaN.
      const V f = load(factors + j, part);
      store(hn::IfThenElseZero(hn::Gt(f, zero()), hn::Mul(f, load(x + i + j, part))), y + i + j, part);
    });
  }
}
void dropout_range(const void* x, DType dtype, const Random& random, uint32_t threshold, float factor, int64_t begin,
                   int64_t end, void* y) {
  dtype == DType::bfloat16
      ? dropout_as(static_cast<const bfloat16*>(x), random, threshold, factor, begin, end, static_cast<bfloat16*>(y))
      : dropout_as(static_cast<const float*>(x), random, threshold, factor, begin, end, static_cast<float*>(y));
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(add_range);
HWY_EXPORT(scale_range);
HWY_EXPORT(dropout_range);

/// Elements per task; a multiple of four vectors of any instruction set.
constexpr int64_t grain = 16384;

void check_like(const char* operation, const char* name, const Tensor& tensor, const Tensor& other) {
  check(is_floating(other.dtype()), "[{}] elements are {}, expected floating point", operation, name_of(other.dtype()));
  check(tensor.shape() == other.shape() && tensor.dtype() == other.dtype(), "[{}] {} is {} {}, expected {} {}",
        operation, name, name_of(tensor.dtype()), to_string(tensor.shape()), name_of(other.dtype()),
        to_string(other.shape()));
  check(tensor.contiguous() && other.contiguous(), "[{}] {} has strides {}, expected contiguous tensors", operation,
        name, to_string(tensor.strides()));
}

void drop(const char* operation, const Tensor& x, float probability, const Random& random, Tensor& y) {
  check_like(operation, "the result", y, x);
  check(probability >= 0 && probability < 1, "[{}] probability is {}, expected 0 <= probability < 1", operation,
        probability);
  // (word >> 8) * 2^-24 < probability  <=>  (word >> 8) < ceil(probability * 2^24)
  const auto threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(probability) * 0x1p24));
  const float factor = 1 / (1 - probability);
  prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_range);
  parallel_ranges(x.elements(), grain, [&](int64_t begin, int64_t end) {
    kernel(x.raw(), x.dtype(), random, threshold, factor, begin, end, y.raw());
  });
}

}  // namespace

void add(const Tensor& a, const Tensor& b, Tensor& y) {
  check_like("add", "b", b, a);
  check_like("add", "y", y, a);
  prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_range);
  parallel_ranges(a.elements(), grain,
                  [&](int64_t begin, int64_t end) { kernel(a.raw(), b.raw(), y.raw(), a.dtype(), begin, end); });
}

void add_in_place(Tensor& y, const Tensor& x) { add(y, x, y); }

void scale_in_place(Tensor& y, float factor) {
  check_like("scale", "y", y, y);
  prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_range);
  parallel_ranges(y.elements(), grain,
                  [&](int64_t begin, int64_t end) { kernel(y.raw(), y.dtype(), factor, begin, end); });
}

void dropout(const Tensor& x, float probability, const Random& random, Tensor& y) {
  drop("dropout", x, probability, random, y);
}

void dropout_backward(const Tensor& dy, float probability, const Random& random, Tensor& dx) {
  drop("dropout_backward", dy, probability, random, dx);
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
