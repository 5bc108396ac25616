// Per-target helpers of the kernels in this folder: loads and stores that convert to float32, loops with a tail, and
// the functions that Highway's math library lacks. Include after hwy/foreach_target.h.
#if defined(ALIBI_NN_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_NN_SIMD_INL_H_
#undef ALIBI_NN_SIMD_INL_H_
#else
#define ALIBI_NN_SIMD_INL_H_
#endif

#include <cstring>

#include "alibi/tensor.h"
#include "core/float16-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using V = hn::Vec<Floats>;

/// The lanes of a vector in use: all, or the first `count` at the end of a row.
struct Whole {};
struct Part {
  size_t count;
};

template <class T>
HWY_INLINE V load(const T* p, Whole) {
  return core::HWY_NAMESPACE::load(Floats(), p);
}
/// Numbers of a block of q8_0 before they are multiplied by its scale.
HWY_INLINE V load_quants(const int8_t* p) {
  const hn::Rebind<int8_t, Floats> d8;
  return hn::ConvertTo(Floats(), hn::PromoteTo(hn::Rebind<int32_t, Floats>(), hn::LoadU(d8, p)));
}
/// Lanes after the part are zero.
template <class T>
HWY_INLINE V load(const T* p, Part part) {
  alignas(64) T lanes[hn::MaxLanes(Floats())] = {};
  std::memcpy(lanes, p, part.count * sizeof(T));
  return load(lanes, Whole());
}

/// Rounds as bfloat16's constructor does.
template <class T>
HWY_INLINE void store(V v, T* p, Whole) {
  core::HWY_NAMESPACE::store(v, Floats(), p);
}
template <class T>
HWY_INLINE void store(V v, T* p, Part part) {
  alignas(64) T lanes[hn::MaxLanes(Floats())];
  store(v, lanes, Whole());
  std::memcpy(p, lanes, part.count * sizeof(T));
}

/// v with zeros, or `other`, in the lanes after the part.
HWY_INLINE V keep(V v, Whole) { return v; }
HWY_INLINE V keep(V v, Part part) { return hn::IfThenElseZero(hn::FirstN(Floats(), part.count), v); }
HWY_INLINE V keep_or(V v, V, Whole) { return v; }
HWY_INLINE V keep_or(V v, V other, Part part) { return hn::IfThenElse(hn::FirstN(Floats(), part.count), v, other); }

/// Calls body(i, Whole) for every whole vector of [0, n), then body(i, Part) for the rest.
template <class Body>
HWY_INLINE void each_vector(int64_t n, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Whole());
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}

HWY_INLINE V set(float value) { return hn::Set(Floats(), value); }
HWY_INLINE V zero() { return hn::Zero(Floats()); }
HWY_INLINE float sum(V v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }

/// x times a factor of dropout. A dropped infinity gives 0 instead of NaN.
HWY_INLINE V drop(V factor, V x) { return hn::IfThenElseZero(hn::Gt(factor, zero()), hn::Mul(factor, x)); }

/// exp for arguments up to 104.
HWY_INLINE V exp(V x) { return hn::Exp(Floats(), x); }
/// 1 / (1 + exp(-x)). The clamp keeps exp finite; beyond it the result is below 1e-37.
HWY_INLINE V sigmoid(V x) { return hn::Div(set(1), hn::Add(set(1), exp(hn::Min(set(87), hn::Neg(x))))); }

/// Distribution function of the standard normal, (1 + erf(x / sqrt 2)) / 2, with an error of 1.5e-7. It is 1/2 plus x
/// times a rational function of x^2, fitted for minimal maximum error over |x| <= 5.4 (5.5e-9 before rounding). Beyond,
/// the result differs from 0 or 1 by less than 4e-8.
HWY_INLINE V normal_cdf(V x) {
  const V u = hn::Min(hn::Mul(x, x), set(30));
  V p = set(2.33871915e-8f);
  p = hn::MulAdd(p, u, set(6.359460069e-6f));
  p = hn::MulAdd(p, u, set(1.642869357e-4f));
  p = hn::MulAdd(p, u, set(4.650639181e-3f));
  p = hn::MulAdd(p, u, set(3.336917105e-2f));
  p = hn::MulAdd(p, u, set(3.989422457e-1f));
  V q = set(1.216562408e-6f);
  q = hn::MulAdd(q, u, set(7.238729925e-5f));
  q = hn::MulAdd(q, u, set(1.858787935e-3f));
  q = hn::MulAdd(q, u, set(2.8376873e-2f));
  q = hn::MulAdd(q, u, set(2.503102007e-1f));
  q = hn::MulAdd(q, u, set(1));
  const V inner = hn::MulAdd(x, hn::Div(p, q), set(0.5f));
  const V low = hn::IfThenZeroElse(hn::Lt(x, set(-5.4f)), inner);
  return hn::IfThenElse(hn::Gt(x, set(5.4f)), set(1), low);
}
/// Density of the standard normal.
HWY_INLINE V normal_pdf(V x) { return hn::Mul(set(0.3989422804f), exp(hn::Mul(set(-0.5f), hn::Mul(x, x)))); }

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
