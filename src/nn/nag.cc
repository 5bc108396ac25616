#include "nn/nag.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/nag.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "nn/kernel_args.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

void nag_range(const NagStep& a, int64_t begin, int64_t end) {
  const V decay = set(a.decay), look = set(a.look), keep = set(a.keep), reach = set(a.reach), step = set(a.step);
  each_vector(end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
    i += begin;
    const V g = load(a.gradient + i, lanes);
    const V buffer = load(a.buffer + i, lanes);
    const V weight = hn::MulAdd(look, buffer, hn::Mul(decay, load(a.weight + i, lanes)));
    store(hn::NegMulAdd(reach, g, weight), a.weight + i, lanes);
    store(hn::NegMulAdd(step, g, hn::Mul(keep, buffer)), a.buffer + i, lanes);
  });
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

HWY_EXPORT(nag_range);

constexpr int64_t grain = 32768;

}  // namespace

void nag(std::span<float> weight, std::span<const float> gradient, std::span<float> buffer, const Nag& options,
         float gradient_factor) {
  check(gradient.size() == weight.size() && buffer.size() == weight.size(),
        "[nag] gradient and buffer hold {} and {} values, expected {} like the weight", gradient.size(), buffer.size(),
        weight.size());
  const double rate = options.learning_rate, previous = options.previous_rate, momentum = options.momentum;
  const double follow = previous > 0 ? rate / previous : 1;
  NagStep args{};
  args.weight = weight.data();
  args.gradient = gradient.data();
  args.buffer = buffer.data();
  args.decay = static_cast<float>(1 - rate * static_cast<double>(options.weight_decay));
  args.look = static_cast<float>(momentum * momentum * follow);
  args.keep = static_cast<float>(momentum * follow);
  args.reach = static_cast<float>((1 + momentum) * rate * static_cast<double>(gradient_factor));
  args.step = static_cast<float>(rate * static_cast<double>(gradient_factor));
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(nag_range);
  core::parallel_ranges(static_cast<int64_t>(weight.size()), grain,
                        [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
