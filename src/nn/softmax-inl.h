// The softmax of a row of logits, per target. Include after hwy/foreach_target.h.
#if defined(ALIBI_NN_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_NN_SOFTMAX_INL_H_
#undef ALIBI_NN_SOFTMAX_INL_H_
#else
#define ALIBI_NN_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

HWY_INLINE float max_of(const float* logits, int64_t n) {
  V top = set(logits[0]);
  each_vector(
      n, [&](int64_t i, auto lanes) HWY_ATTR { top = hn::Max(top, keep_or(load(logits + i, lanes), top, lanes)); });
  return hn::GetLane(hn::MaxOfLanes(Floats(), top));
}

/// log(sum(exp(logits))), given their maximum. The sum is float32 within blocks and float64 across them.
HWY_INLINE double log_sum_exp(const float* logits, int64_t n, float maximum) {
  constexpr int64_t block = 4096;
  const V top = set(maximum);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    V part = zero();
    each_vector(n - begin < block ? n - begin : block, [&](int64_t i, auto lanes) HWY_ATTR {
      part = hn::Add(part, keep(exp(hn::Sub(load(logits + begin + i, lanes), top)), lanes));
    });
    total += sum(part);
  }
  return static_cast<double>(maximum) + std::log(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
