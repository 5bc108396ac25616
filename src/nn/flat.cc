#include "nn/flat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/flat.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "nn/kernel_args.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

double squares(const float* values, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto total = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::PromoteTo(d, hn::LoadU(df, values + i));
    total = hn::MulAdd(x, x, total);
  }
  double result = hn::GetLane(hn::SumOfLanes(d, total));
  for (; i < count; ++i) result += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return result;
}

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// w = decay * w - rate * m / (sqrt(v) * v_factor + eps), with the corrections of both moments in rate and v_factor.
void adamw_range(const AdamWStep& a, int64_t begin, int64_t end) {
  const V beta1 = set(a.beta1), beta2 = set(a.beta2), rest1 = set(a.rest1), rest2 = set(a.rest2);
  const V factor = set(a.gradient_factor), decay = set(a.decay), rate = set(a.rate), eps = set(a.eps);
  const V v_factor = set(a.v_factor);
  each_vector(end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
    i += begin;
    const V g = hn::Mul(factor, load(a.gradient + i, lanes));
    const V m = hn::MulAdd(beta1, load(a.m + i, lanes), hn::Mul(rest1, g));
    const V v = hn::MulAdd(beta2, load(a.v + i, lanes), hn::Mul(rest2, hn::Mul(g, g)));
    const V update = hn::Div(hn::Mul(rate, m), hn::MulAdd(hn::Sqrt(v), v_factor, eps));
    store(m, a.m + i, lanes);
    store(v, a.v + i, lanes);
    store(hn::Sub(hn::Mul(decay, load(a.weight + i, lanes)), update), a.weight + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <vector>

#include "core/check.h"
#include "core/isa.h"
#include "core/parallel.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(squares);
HWY_EXPORT(adamw_range);

constexpr int64_t grain = 32768;

}  // namespace

double sum_of_squares(const float* values, int64_t count) {
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(squares);
  std::vector<double> parts(static_cast<size_t>(core::ceil_div(count, grain)));
  core::parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
    parts[static_cast<size_t>(begin / grain)] = kernel(values + begin, end - begin);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

void adamw(std::span<float> weight, std::span<const float> gradient, std::span<float> m, std::span<float> v,
           const AdamW& options, int64_t step, float gradient_factor) {
  check(gradient.size() == weight.size() && m.size() == weight.size() && v.size() == weight.size(),
        "[adamw] gradient, m and v hold {}, {} and {} values, expected {} like the weight", gradient.size(), m.size(),
        v.size(), weight.size());
  check(step >= 1, "[adamw] step is {}, expected 1 or more", step);
  const double beta1 = options.beta1, beta2 = options.beta2, rate = options.learning_rate;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  AdamWStep args{};
  args.weight = weight.data();
  args.gradient = gradient.data();
  args.m = m.data();
  args.v = v.data();
  args.gradient_factor = gradient_factor;
  args.beta1 = options.beta1;
  args.beta2 = options.beta2;
  args.rest1 = static_cast<float>(1 - beta1);
  args.rest2 = static_cast<float>(1 - beta2);
  args.decay = static_cast<float>(1 - rate * static_cast<double>(options.weight_decay));
  args.rate = static_cast<float>(rate / correction1);
  args.v_factor = static_cast<float>(1 / std::sqrt(correction2));
  args.eps = options.eps;
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(adamw_range);
  core::parallel_ranges(static_cast<int64_t>(weight.size()), grain,
                        [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
