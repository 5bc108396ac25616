#include "nn/foreach.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/foreach.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

#ifndef ALIBI_NN_FOREACH_STEPS_
#define ALIBI_NN_FOREACH_STEPS_
namespace alibi::nn {

struct AdamWStep {
  float gradient_factor;
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta
  float decay;         // 1 - learning rate * weight decay
  float rate;          // learning rate / (1 - beta1^step)
  float v_factor;      // 1 / sqrt(1 - beta2^step)
  float eps;
};

struct NagStep {
  float decay;         // 1 - learning rate * weight decay
  float look;          // momentum^2 c: factor of the buffer, added to the weight
  float keep;          // momentum c: factor of the buffer, added to the buffer
  float gradient;      // (1 + momentum) * learning rate * gradient factor: factor of the gradient, added to the weight
  float new_gradient;  // learning rate * gradient factor: factor of the gradient, added to the buffer
};

}  // namespace alibi::nn
#endif

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
void adamw_step(const AdamWStep& a, const float* gradient, int64_t count, float* weight, float* mean, float* square) {
  const V beta1 = set(a.beta1), beta2 = set(a.beta2), rest1 = set(a.rest1), rest2 = set(a.rest2);
  const V factor = set(a.gradient_factor), decay = set(a.decay), rate = set(a.rate), eps = set(a.eps);
  const V v_factor = set(a.v_factor);
  each_vector(count, [&](int64_t i, auto lanes) HWY_ATTR {
    const V g = hn::Mul(factor, load(gradient + i, lanes));
    const V m = hn::MulAdd(beta1, load(mean + i, lanes), hn::Mul(rest1, g));
    const V v = hn::MulAdd(beta2, load(square + i, lanes), hn::Mul(rest2, hn::Mul(g, g)));
    const V update = hn::Div(hn::Mul(rate, m), hn::MulAdd(hn::Sqrt(v), v_factor, eps));
    store(m, mean + i, lanes);
    store(v, square + i, lanes);
    store(hn::Sub(hn::Mul(decay, load(weight + i, lanes)), update), weight + i, lanes);
  });
}

void nag_step(const NagStep& a, const float* gradient, int64_t count, float* weight, float* buffer) {
  const V decay = set(a.decay), look = set(a.look), keep = set(a.keep);
  const V of_gradient = set(a.gradient), of_new_gradient = set(a.new_gradient);
  each_vector(count, [&](int64_t i, auto lanes) HWY_ATTR {
    const V g = load(gradient + i, lanes);
    const V b = load(buffer + i, lanes);
    const V w = hn::MulAdd(look, b, hn::Mul(decay, load(weight + i, lanes)));
    store(hn::NegMulAdd(of_gradient, g, w), weight + i, lanes);
    store(hn::NegMulAdd(of_new_gradient, g, hn::Mul(keep, b)), buffer + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/isa.h"
#include "core/pieces.h"
#include "nn/elementwise.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(squares);
HWY_EXPORT(adamw_step);
HWY_EXPORT(nag_step);

/// Elements per task, which take some ten microseconds to read and write.
constexpr int64_t grain_of_many = int64_t{1} << 15;

/// Checks that there are as many tensors as in `like`, each with as many elements.
void check_like(const char* operation, const char* name, const Tensors& tensors, const Tensors& like) {
  check(tensors.size() == like.size(), "[{}] {} tensors as {}, expected {}", operation, tensors.size(), name,
        like.size());
  for (size_t i = 0; i < like.size(); ++i) {
    check_vector(operation, name, tensors[i], like[i].elements(), DType::float32);
  }
}

core::Pieces pieces_of(const Tensors& tensors) {
  core::Pieces pieces(grain_of_many);
  for (const Tensor& tensor : tensors) pieces.add(tensor.elements());
  return pieces;
}

/// Start of a piece in its tensor.
float* at(const Tensors& tensors, const core::Piece& piece) { return tensors[piece.array].data<float>() + piece.begin; }

/// Calls work(piece) for all pieces in parallel.
template <class Work>
void each_piece(const Tensors& tensors, const Work& work) {
  const core::Pieces pieces = pieces_of(tensors);
  core::prepare_dispatch();
  core::parallel_for(pieces.size(), [&](int64_t task) { work(pieces.at(task)); });
}

}  // namespace

void fill(const Tensors& tensors, float value) {
  check_like("fill", "tensor", tensors, tensors);
  each_piece(tensors, [&](const core::Piece& piece) { std::fill_n(at(tensors, piece), piece.size(), value); });
}

void convert(const Tensors& from, const Tensors& to) {
  check(from.size() == to.size(), "[convert] {} tensors to {}", from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    check(is_floating(from[i].dtype()) && is_floating(to[i].dtype()) && from[i].shape() == to[i].shape() &&
              from[i].contiguous() && to[i].contiguous(),
          "[convert] tensor {} is {} {}, its result {} {}; expected one shape, floating point, contiguous", i,
          name_of(from[i].dtype()), to_string(from[i].shape()), name_of(to[i].dtype()), to_string(to[i].shape()));
  }
  each_piece(from, [&](const core::Piece& piece) {
    const Tensor &x = from[piece.array], &y = to[piece.array];
    const auto begin = [&](const Tensor& tensor) {
      return static_cast<char*>(tensor.raw()) + piece.begin * static_cast<int64_t>(size_of(tensor.dtype()));
    };
    convert_row(begin(x), x.dtype(), piece.size(), begin(y), y.dtype());
  });
}

double sum_of_squares(const Tensors& tensors) {
  check_like("sum_of_squares", "tensor", tensors, tensors);
  const core::Pieces pieces = pieces_of(tensors);
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(squares);
  std::vector<double> sums(static_cast<size_t>(pieces.size()));
  core::parallel_for(pieces.size(), [&](int64_t task) {
    const core::Piece piece = pieces.at(task);
    sums[static_cast<size_t>(task)] = kernel(at(tensors, piece), piece.size());
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void adamw(const Tensors& weights, const Tensors& gradients, const Tensors& m, const Tensors& v,
           const std::vector<bool>& decays, const AdamW& options, int64_t step, float gradient_factor) {
  check_like("adamw", "weight", weights, weights);
  check_like("adamw", "gradient", gradients, weights);
  check_like("adamw", "m", m, weights);
  check_like("adamw", "v", v, weights);
  check(decays.size() == weights.size(), "[adamw] decays has {} entries, expected {}", decays.size(), weights.size());
  check(step >= 1, "[adamw] step is {}, expected 1 or more", step);
  const double beta1 = options.beta1, beta2 = options.beta2, rate = options.learning_rate;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  const AdamWStep without_decay{.gradient_factor = gradient_factor,
                                .beta1 = options.beta1,
                                .beta2 = options.beta2,
                                .rest1 = static_cast<float>(1 - beta1),
                                .rest2 = static_cast<float>(1 - beta2),
                                .decay = 1,
                                .rate = static_cast<float>(rate / correction1),
                                .v_factor = static_cast<float>(1 / std::sqrt(correction2)),
                                .eps = options.eps};
  AdamWStep with_decay = without_decay;
  with_decay.decay = static_cast<float>(1 - rate * static_cast<double>(options.weight_decay));
  each_piece(weights, [&](const core::Piece& piece) {
    HWY_DYNAMIC_DISPATCH(adamw_step)
    (decays[piece.array] ? with_decay : without_decay, at(gradients, piece), piece.size(), at(weights, piece),
     at(m, piece), at(v, piece));
  });
}

void nag(const Tensors& weights, const Tensors& gradients, const Tensors& buffers, const std::vector<bool>& decays,
         const Nag& options, float gradient_factor) {
  check_like("nag", "weight", weights, weights);
  check_like("nag", "gradient", gradients, weights);
  check_like("nag", "buffer", buffers, weights);
  check(decays.size() == weights.size(), "[nag] decays has {} entries, expected {}", decays.size(), weights.size());
  const double rate = options.learning_rate, previous = options.previous_rate, momentum = options.momentum;
  const double follow = previous > 0 ? rate / previous : 1;
  const double factor = gradient_factor;
  const NagStep without_decay{.decay = 1,
                              .look = static_cast<float>(momentum * momentum * follow),
                              .keep = static_cast<float>(momentum * follow),
                              .gradient = static_cast<float>((1 + momentum) * rate * factor),
                              .new_gradient = static_cast<float>(rate * factor)};
  NagStep with_decay = without_decay;
  with_decay.decay = static_cast<float>(1 - rate * static_cast<double>(options.weight_decay));
  each_piece(weights, [&](const core::Piece& piece) {
    HWY_DYNAMIC_DISPATCH(nag_step)
    (decays[piece.array] ? with_decay : without_decay, at(gradients, piece), piece.size(), at(weights, piece),
     at(buffers, piece));
  });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
