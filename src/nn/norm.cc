#include "nn/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include <cmath>

#include "nn/kernel_args.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// Both norms differ in whether a mean is taken off, which `a.mean != nullptr` says.
template <class T>
void norm_rows_as(const NormForward& a, int64_t begin, int64_t end) {
  const int64_t n = a.features;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * n;
    T* y = static_cast<T*>(a.y) + row * n;
    float mean = 0;
    if (a.mean != nullptr) {
      V total = zero();
      each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR { total = hn::Add(total, load(x + i, lanes)); });
      a.mean[row] = mean = sum(total) / static_cast<float>(n);
    }
    const V center = set(mean);
    V squares = zero();
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V d = keep(hn::Sub(load(x + i, lanes), center), lanes);
      squares = hn::MulAdd(d, d, squares);
    });
    const float rstd = 1 / std::sqrt(sum(squares) / static_cast<float>(n) + a.eps);
    a.rstd[row] = rstd;
    const V factor = set(rstd);
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V normal = hn::Mul(hn::Sub(load(x + i, lanes), center), factor);
      const V shift = a.bias != nullptr ? load(a.bias + i, lanes) : zero();
      store(hn::MulAdd(normal, load(a.weight + i, lanes), shift), y + i, lanes);
    });
  }
}

void norm_rows(const NormForward& a, DType dtype, int64_t begin, int64_t end) {
  dtype == DType::bfloat16 ? norm_rows_as<bfloat16>(a, begin, end) : norm_rows_as<float>(a, begin, end);
}

/// With g = dy * weight and n = (x - mean) * rstd: dx = rstd * (g - mean(g) - n * mean(g * n)), where mean(g) stands
/// for the mean taken off in the forward pass and is absent from the RMS norm. dweight += dy * n, dbias += dy.
template <class T>
void norm_backward_rows_as(const NormBackward& a, int64_t begin, int64_t end, float* dweight, float* dbias) {
  const int64_t n = a.features;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * n;
    const T* dy = static_cast<const T*>(a.dy) + row * n;
    T* dx = static_cast<T*>(a.dx) + row * n;
    const V center = set(a.mean != nullptr ? a.mean[row] : 0);
    const V rstd = set(a.rstd[row]);
    const auto normal = [&](int64_t i, auto lanes)
                            HWY_ATTR { return hn::Mul(hn::Sub(load(x + i, lanes), center), rstd); };

    V sum_g = zero(), sum_gn = zero();
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V g = hn::Mul(load(dy + i, lanes), load(a.weight + i, lanes));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, normal(i, lanes), sum_gn);
    });
    const V mean_g = set(a.mean != nullptr ? sum(sum_g) / static_cast<float>(n) : 0);
    const V mean_gn = set(sum(sum_gn) / static_cast<float>(n));

    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V d = load(dy + i, lanes);
      const V normal_i = normal(i, lanes);
      const V g = hn::Mul(d, load(a.weight + i, lanes));
      store(hn::Mul(rstd, hn::NegMulAdd(normal_i, mean_gn, hn::Sub(g, mean_g))), dx + i, lanes);
      if (dweight != nullptr) store(hn::MulAdd(d, normal_i, load(dweight + i, lanes)), dweight + i, lanes);
      if (dbias != nullptr) store(hn::Add(d, load(dbias + i, lanes)), dbias + i, lanes);
    });
  }
}

void norm_backward_rows(const NormBackward& a, DType dtype, int64_t begin, int64_t end, float* dweight, float* dbias) {
  dtype == DType::bfloat16 ? norm_backward_rows_as<bfloat16>(a, begin, end, dweight, dbias)
                           : norm_backward_rows_as<float>(a, begin, end, dweight, dbias);
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/reduce.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_backward_rows);

void norm_forward(const char* operation, const Tensor& x, const Tensor& weight, const Tensor* bias, float eps,
                  Tensor& y, Tensor* mean, Tensor& rstd) {
  const Rows shape = rows_of(operation, "x", x);
  check_rows(operation, "y", y, shape, x.dtype());
  const Tensor weights = float_vector(operation, "weight", weight, shape.features);
  const Tensor biases = bias != nullptr ? float_vector(operation, "bias", *bias, shape.features) : Tensor();
  if (mean != nullptr) check_vector(operation, "mean", *mean, shape.rows, DType::float32);
  check_vector(operation, "rstd", rstd, shape.rows, DType::float32);
  check(shape.features > 0, "[{}] x is {}, expected at least one feature", operation, to_string(x.shape()));

  const NormForward args{shape.features,
                         x.raw(),
                         weights.data<float>(),
                         bias != nullptr ? biases.data<float>() : nullptr,
                         eps,
                         y.raw(),
                         mean != nullptr ? mean->data<float>() : nullptr,
                         rstd.data<float>()};
  prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_rows);
  parallel_ranges(shape.rows, rows_per_task(shape.features),
                  [&](int64_t begin, int64_t end) { kernel(args, x.dtype(), begin, end); });
}

void norm_backward(const char* operation, const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor* mean,
                   const Tensor& rstd, Tensor& dx, Tensor* dweight, Tensor* dbias) {
  const Rows shape = rows_of(operation, "x", x);
  check_rows(operation, "dy", dy, shape, x.dtype());
  check_rows(operation, "dx", dx, shape, x.dtype());
  const Tensor weights = float_vector(operation, "weight", weight, shape.features);
  if (mean != nullptr) check_vector(operation, "mean", *mean, shape.rows, DType::float32);
  check_vector(operation, "rstd", rstd, shape.rows, DType::float32);
  if (dweight != nullptr) check_vector(operation, "dweight", *dweight, shape.features, DType::float32);
  if (dbias != nullptr) check_vector(operation, "dbias", *dbias, shape.features, DType::float32);
  if (shape.rows == 0) return;

  const NormBackward args{
      shape.features,     dy.raw(), x.raw(), weights.data<float>(), mean != nullptr ? mean->data<float>() : nullptr,
      rstd.data<float>(), dx.raw()};
  prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_backward_rows);
  // Every task sums its rows' share of dweight and dbias apart; the shares are added in order.
  const int64_t step = rows_per_partial(shape.rows);
  const int64_t parts = ceil_div(shape.rows, step);
  const Tensor dweights = dweight != nullptr ? Tensor({parts, shape.features}) : Tensor();
  const Tensor dbiases = dbias != nullptr ? Tensor({parts, shape.features}) : Tensor();
  parallel_ranges(shape.rows, step, [&](int64_t begin, int64_t end) {
    const int64_t at = begin / step * shape.features;
    kernel(args, x.dtype(), begin, end, dweight != nullptr ? dweights.data<float>() + at : nullptr,
           dbias != nullptr ? dbiases.data<float>() + at : nullptr);
  });
  if (dweight != nullptr) add_partials(dweights.data<float>(), parts, shape.features, dweight->data<float>(), true);
  if (dbias != nullptr) add_partials(dbiases.data<float>(), parts, shape.features, dbias->data<float>(), true);
}

}  // namespace

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor* bias, float eps, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  norm_forward("layer_norm", x, weight, bias, eps, y, &mean, rstd);
}

void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, Tensor& dx, Tensor* dweight, Tensor* dbias) {
  norm_backward("layer_norm_backward", dy, x, weight, &mean, rstd, dx, dweight, dbias);
}

void rms_norm(const Tensor& x, const Tensor& weight, float eps, Tensor& y, Tensor& rstd) {
  norm_forward("rms_norm", x, weight, nullptr, eps, y, nullptr, rstd);
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, Tensor& dx,
                       Tensor* dweight) {
  norm_backward("rms_norm_backward", dy, x, weight, nullptr, rstd, dx, dweight, nullptr);
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
