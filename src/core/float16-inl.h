// float16 and bfloat16 in vectors of float32.
#if defined(ALIBI_CORE_FLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_CORE_FLOAT16_INL_H_
#undef ALIBI_CORE_FLOAT16_INL_H_
#else
#define ALIBI_CORE_FLOAT16_INL_H_
#endif

#include <cstdint>

#include "alibi/tensor.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::core::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The float32 numbers of a vector of float16, exact for every one of them. Without an instruction for it, Highway 1.0
/// gives infinity and NaN finite values.
template <class D>
HWY_INLINE hn::Vec<D> from_float16(D f, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM
  return hn::PromoteTo(f, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#else
  const hn::RebindToUnsigned<D> u;
  const auto word = hn::PromoteTo(u, bits);
  const auto exponent = hn::And(word, hn::Set(u, 0x7c00u));
  const auto normal = hn::Add(hn::ShiftLeft<13>(hn::And(word, hn::Set(u, 0x7fffu))), hn::Set(u, (127u - 15u) << 23));
  const auto special = hn::Or(normal, hn::Set(u, 0x7f800000u));
  const auto fraction = hn::BitCast(hn::RebindToSigned<D>(), hn::And(word, hn::Set(u, 0x3ffu)));
  const auto small = hn::BitCast(u, hn::Mul(hn::ConvertTo(f, fraction), hn::Set(f, 0x1p-24f)));
  const auto large = hn::IfThenElse(hn::Eq(exponent, hn::Set(u, 0x7c00u)), special, normal);
  const auto magnitude = hn::IfThenElse(hn::Eq(exponent, hn::Zero(u)), small, large);
  return hn::BitCast(f, hn::Or(magnitude, hn::ShiftLeft<16>(hn::And(word, hn::Set(u, 0x8000u)))));
#endif
}
/// A vector of numbers, as float32.
template <class D>
HWY_INLINE hn::Vec<D> load(D f, const float* at) {
  return hn::LoadU(f, at);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D f, const float16* at) {
  return from_float16(f, hn::LoadU(hn::Rebind<uint16_t, D>(), &at->bits));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D f, const bfloat16* at) {
  const auto words = hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(hn::Rebind<uint16_t, D>(), &at->bits));
  return hn::BitCast(f, hn::ShiftLeft<16>(words));
}
template <class D>
HWY_INLINE hn::Vec<D> set_float16(D f, uint16_t bits) {
  return from_float16(f, hn::Set(hn::Rebind<uint16_t, D>(), bits));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D f, float* at) {
  hn::StoreU(v, f, at);
}
/// Rounds as bfloat16's constructor does.
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D, bfloat16* at) {
  const hn::Rebind<uint16_t, D> half;
  const hn::RebindToSigned<D> i;
  const hn::RebindToUnsigned<D> u;
  const auto word = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(u, 1u));
  const auto rounded = hn::Add(word, hn::Add(odd, hn::Set(u, 0x7fffu)));
  const auto quiet = hn::Or(word, hn::Set(u, 0x00400000u));
  const auto nan = hn::RebindMask(u, hn::Ne(v, v));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(i, high)), half, &at->bits);
}

}  // namespace alibi::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
