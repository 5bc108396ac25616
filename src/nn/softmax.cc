#include "nn/softmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/softmax.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

void numerators(const float* logits, int64_t n, double highest, double temperature, double* weights) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> f;
  const auto weight_of = [&](const float* at) HWY_ATTR {
    const auto logit = hn::PromoteTo(d, hn::LoadU(f, at));
    return hn::Exp(d, hn::Div(hn::Sub(logit, hn::Set(d, highest)), hn::Set(d, temperature)));
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(weight_of(logits + i), d, weights + i);
  if (i == n) return;
  alignas(64) float rest[hn::MaxLanes(d)] = {};
  alignas(64) double weights_of_rest[hn::MaxLanes(d)];
  std::copy(logits + i, logits + n, rest);
  hn::Store(weight_of(rest), d, weights_of_rest);
  std::copy(weights_of_rest, weights_of_rest + (n - i), weights + i);
}

float largest_of(const float* logits, int64_t n) { return max_of(logits, n); }

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"

namespace alibi::nn {

HWY_EXPORT(numerators);
HWY_EXPORT(largest_of);

void softmax_numerators(std::span<const float> logits, double highest, double temperature, std::span<double> weights) {
  core::prepare_dispatch();
  HWY_DYNAMIC_DISPATCH(numerators)(logits.data(), std::ssize(logits), highest, temperature, weights.data());
}

float largest(std::span<const float> logits) {
  if (logits.empty()) return -std::numeric_limits<float>::infinity();
  core::prepare_dispatch();
  return HWY_DYNAMIC_DISPATCH(largest_of)(logits.data(), std::ssize(logits));
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
