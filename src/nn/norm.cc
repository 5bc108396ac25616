#include "nn/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/norm.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include <cmath>
#include <limits>
#include <vector>

#include "nn/kernel_args.h"
#include "nn/philox-inl.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// y = (x - mean) * rstd * weight + bias
template <class X, class T>
HWY_INLINE void normalize_row(const NormForward& a, int64_t row, const X* x, float mean, float rstd, T* y) {
  const V center = set(mean), factor = set(rstd);
  const int64_t first = row % a.groups * a.features;  // of the row's weights
  each_vector(a.features, [&](int64_t i, auto lanes) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load(x + i, lanes), center), factor);
    const V shift = a.bias != nullptr ? load(a.bias + first + i, lanes) : zero();
    store(hn::MulAdd(normal, load(a.weight + first + i, lanes), shift), y + i, lanes);
  });
}

/// Both norms. They differ only in whether the mean is subtracted, which `a.mean != nullptr` indicates.
template <class X, class T>
HWY_INLINE void norm_row(const NormForward& a, int64_t row, const X* x, T* y) {
  const int64_t n = a.features;
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
  // If the sum overflowed, the formula would give 0 and so a row of zeros, which would hide that the model is broken.
  const float variance = sum(squares) / static_cast<float>(n);
  const float rstd =
      std::isfinite(variance) ? 1 / std::sqrt(variance + a.eps) : std::numeric_limits<float>::quiet_NaN();
  a.rstd[row] = rstd;
  normalize_row(a, row, x, mean, rstd, y);
}

/// X is the data type of x and sum, T that of the others. The kept tensor is the input of the norm, so the backward
/// pass can recompute it to the same bits.
template <class X, class T>
void norm_rows_as(const NormForward& a, int64_t begin, int64_t end) {
  const int64_t n = a.features;
  std::vector<float> factors(a.branch != nullptr && a.dropout.threshold > 0 ? static_cast<size_t>(n) : 0);
  for (int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * n;
    T* y = static_cast<T*>(a.y) + row * n;
    if (a.sum == nullptr) {
      norm_row(a, row, x, y);
      continue;
    }
    const T* branch = a.branch != nullptr ? static_cast<const T*>(a.branch) + row * n : nullptr;
    X* total = static_cast<X*>(a.sum) + row * n;
    T* kept = a.kept != nullptr ? static_cast<T*>(a.kept) + row * n : nullptr;
    if (!factors.empty()) dropout_factors(a.dropout, row * n, n, factors.data());
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      V v = load(x + i, lanes);
      if (branch != nullptr) {
        const V b = load(branch + i, lanes);
        v = hn::Add(v, factors.empty() ? b : drop(load(factors.data() + i, lanes), b));
      }
      store(v, total + i, lanes);
      if (kept != nullptr) store(v, kept + i, lanes);
    });
    if (kept != nullptr) {
      norm_row(a, row, kept, y);
    } else {
      norm_row(a, row, total, y);
    }
  }
}

void norm_rows(const NormForward& a, DType x_type, DType y_type, int64_t begin, int64_t end) {
  if (x_type == DType::bfloat16) return norm_rows_as<bfloat16, bfloat16>(a, begin, end);
  y_type == DType::bfloat16 ? norm_rows_as<float, bfloat16>(a, begin, end) : norm_rows_as<float, float>(a, begin, end);
}

/// With known statistics.
template <class T>
void normalize_rows_as(const NormForward& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    normalize_row(a, row, static_cast<const T*>(a.x) + row * a.features, a.mean != nullptr ? a.mean[row] : 0,
                  a.rstd[row], static_cast<T*>(a.y) + row * a.features);
  }
}

void normalize_rows(const NormForward& a, DType dtype, int64_t begin, int64_t end) {
  dtype == DType::bfloat16 ? normalize_rows_as<bfloat16>(a, begin, end) : normalize_rows_as<float>(a, begin, end);
}

/// With g = dy * weight and n = (x - mean) * rstd: dx = rstd * (g - mean(g) - n * mean(g * n)), where mean(g) stands
/// for the mean taken off in the forward pass and is absent from the RMS norm. dweight += dy * n, dbias += dy.
template <class T>
void norm_backward_rows_as(const NormBackward& a, int64_t begin, int64_t end, float* dweights, float* dbiases) {
  const int64_t n = a.features;
  std::vector<float> factors(a.dbranch != nullptr && a.dropout.threshold > 0 ? static_cast<size_t>(n) : 0);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * n;
    const T* dy = static_cast<const T*>(a.dy) + row * n;
    T* dx = a.dx != nullptr ? static_cast<T*>(a.dx) + row * n : nullptr;
    float* dsum = a.dsum != nullptr ? a.dsum + row * n : nullptr;
    T* dbranch = a.dbranch != nullptr ? static_cast<T*>(a.dbranch) + row * n : nullptr;
    const int64_t first = row % a.groups * n;
    const float* weight = a.weight + first;
    float* dweight = dweights != nullptr ? dweights + first : nullptr;
    float* dbias = dbiases != nullptr ? dbiases + first : nullptr;
    const V center = set(a.mean != nullptr ? a.mean[row] : 0);
    const V rstd = set(a.rstd[row]);
    const auto normal = [&](int64_t i, auto lanes)
                            HWY_ATTR { return hn::Mul(hn::Sub(load(x + i, lanes), center), rstd); };

    V sum_g = zero(), sum_gn = zero();
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V g = hn::Mul(load(dy + i, lanes), load(weight + i, lanes));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, normal(i, lanes), sum_gn);
    });
    const V mean_g = set(a.mean != nullptr ? sum(sum_g) / static_cast<float>(n) : 0);
    const V mean_gn = set(sum(sum_gn) / static_cast<float>(n));

    if (!factors.empty()) dropout_factors(a.dropout, row * n, n, factors.data());
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V d = load(dy + i, lanes);
      const V normal_i = normal(i, lanes);
      const V g = hn::Mul(d, load(weight + i, lanes));
      const V dx_i = hn::Mul(rstd, hn::NegMulAdd(normal_i, mean_gn, hn::Sub(g, mean_g)));
      if (dx != nullptr) store(dx_i, dx + i, lanes);
      if (dsum != nullptr) {
        const V total = hn::Add(load(dsum + i, lanes), dx_i);
        store(total, dsum + i, lanes);
        if (dbranch != nullptr) {
          store(factors.empty() ? total : drop(load(factors.data() + i, lanes), total), dbranch + i, lanes);
        }
      }
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
HWY_EXPORT(normalize_rows);
HWY_EXPORT(norm_backward_rows);

/// Checks a norm's parameters and statistics against the rows, and stores them in a kernel's arguments.
template <class Args>
Tensor fill(const char* operation, Rows shape, const NormParameters& norm, Args& args) {
  check(shape.features > 0, "[{}] rows of {} features, expected at least one", operation, shape.features);
  args.features = shape.features;
  args.groups = norm.groups;
  Tensor weight = float_vector(operation, "weight", norm.weight, args.groups * shape.features);
  args.weight = weight.template data<float>();
  return weight;
}

Tensor fill_bias(const char* operation, const NormParameters& norm, NormForward& args) {
  if (norm.bias == nullptr) return {};
  Tensor bias = float_vector(operation, "bias", *norm.bias, args.groups * args.features);
  args.bias = bias.data<float>();
  return bias;
}

template <class Args>
void fill(const char* operation, Rows shape, const NormParameters& norm, const NormStatistics& statistics, Args& args) {
  if (norm.centered) {
    check_vector(operation, "mean", statistics.mean, shape.rows, DType::float32);
    args.mean = statistics.mean.data<float>();
  }
  check_vector(operation, "rstd", statistics.rstd, shape.rows, DType::float32);
  args.rstd = statistics.rstd.data<float>();
}

void run_norm(const char* operation, const Tensor& x, const Tensor* branch, const BranchDropout& dropout,
              const NormParameters& norm, Tensor* sum, Tensor* kept, Tensor& y, const NormStatistics& statistics) {
  const Rows shape = rows_of(operation, "x", x);
  check_rows(operation, "y", y, shape, sum != nullptr ? y.dtype() : x.dtype());
  NormForward args{};
  const Tensor weight = fill(operation, shape, norm, args), bias = fill_bias(operation, norm, args);
  fill(operation, shape, norm, statistics, args);
  args.eps = norm.eps;
  args.x = x.raw();
  args.y = y.raw();
  if (sum != nullptr) {
    check(x.dtype() == DType::float32, "[{}] x is {}, expected float32", operation, name_of(x.dtype()));
    check_rows(operation, "sum", *sum, shape, x.dtype());
    args.sum = sum->raw();
  }
  if (branch != nullptr) {
    check_rows(operation, "branch", *branch, shape, y.dtype());
    args.branch = branch->raw();
    args.dropout = dropout_of(operation, dropout.probability, dropout.random);
  }
  if (kept != nullptr) {
    check_rows(operation, "kept", *kept, shape, y.dtype());
    args.kept = kept->raw();
  }
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_rows);
  core::parallel_ranges(shape.rows, rows_per_task(shape.features),
                        [&](int64_t begin, int64_t end) { kernel(args, x.dtype(), y.dtype(), begin, end); });
}

/// Writes dx, or adds to dsum and optionally writes dbranch.
void run_norm_backward(const char* operation, const Tensor& dy, const Tensor& x, const NormParameters& norm,
                       const NormStatistics& statistics, Tensor* dx, const BranchDropout& dropout, Tensor* dsum,
                       Tensor* dbranch, Tensor* dweight, Tensor* dbias) {
  const Rows shape = rows_of(operation, "x", x);
  check_rows(operation, "dy", dy, shape, x.dtype());
  NormBackward args{};
  const Tensor weight = fill(operation, shape, norm, args);
  fill(operation, shape, norm, statistics, args);
  args.dy = dy.raw();
  args.x = x.raw();
  if (dx != nullptr) {
    check_rows(operation, "dx", *dx, shape, x.dtype());
    args.dx = dx->raw();
  }
  if (dsum != nullptr) {
    check_rows(operation, "dsum", *dsum, shape, DType::float32);
    args.dsum = dsum->data<float>();
  }
  if (dbranch != nullptr) {
    check_rows(operation, "dbranch", *dbranch, shape, x.dtype());
    args.dbranch = dbranch->raw();
    args.dropout = dropout_of(operation, dropout.probability, dropout.random);
  }
  const int64_t width = args.groups * shape.features;
  if (dweight != nullptr) check_vector(operation, "dweight", *dweight, width, DType::float32);
  if (dbias != nullptr) check_vector(operation, "dbias", *dbias, width, DType::float32);
  if (shape.rows == 0) return;

  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_backward_rows);
  // Every task sums its rows' share of dweight and dbias separately. The shares are added in order.
  const int64_t step = rows_per_partial(shape.rows);
  const int64_t parts = core::ceil_div(shape.rows, step);
  const Tensor dweights = dweight != nullptr ? Tensor({parts, width}) : Tensor();
  const Tensor dbiases = dbias != nullptr ? Tensor({parts, width}) : Tensor();
  core::parallel_ranges(shape.rows, step, [&](int64_t begin, int64_t end) {
    const int64_t at = begin / step * width;
    kernel(args, x.dtype(), begin, end, dweight != nullptr ? dweights.data<float>() + at : nullptr,
           dbias != nullptr ? dbiases.data<float>() + at : nullptr);
  });
  if (dweight != nullptr) add_partials(dweights.data<float>(), parts, width, dweight->data<float>());
  if (dbias != nullptr) add_partials(dbiases.data<float>(), parts, width, dbias->data<float>());
}

}  // namespace

void norm(const Tensor& x, const NormParameters& norm, Tensor& y, NormStatistics& statistics) {
  run_norm("norm", x, nullptr, {}, norm, nullptr, nullptr, y, statistics);
}

void norm_backward(const Tensor& dy, const Tensor& x, const NormParameters& norm, const NormStatistics& statistics,
                   Tensor& dx, Tensor* dweight, Tensor* dbias) {
  run_norm_backward("norm_backward", dy, x, norm, statistics, &dx, {}, nullptr, nullptr, dweight, dbias);
}

void residual_norm(const Tensor& x, const Tensor* branch, const BranchDropout& dropout, const NormParameters& norm,
                   Tensor& sum, Tensor* kept, Tensor& y, NormStatistics& statistics) {
  run_norm("residual_norm", x, branch, dropout, norm, &sum, kept, y, statistics);
}

void normalize(const Tensor& x, const NormParameters& norm, const NormStatistics& statistics, Tensor& y) {
  const char* operation = "normalize";
  const Rows shape = rows_of(operation, "x", x);
  check_rows(operation, "y", y, shape, x.dtype());
  NormForward args{};
  const Tensor weight = fill(operation, shape, norm, args), bias = fill_bias(operation, norm, args);
  fill(operation, shape, norm, statistics, args);
  args.x = x.raw();
  args.y = y.raw();
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(normalize_rows);
  core::parallel_ranges(shape.rows, rows_per_task(shape.features),
                        [&](int64_t begin, int64_t end) { kernel(args, x.dtype(), begin, end); });
}

void residual_norm_backward(const Tensor& dy, const Tensor& x, const NormParameters& norm,
                            const NormStatistics& statistics, const BranchDropout& dropout, Tensor& dsum,
                            Tensor* dbranch, Tensor* dweight, Tensor* dbias) {
  run_norm_backward("residual_norm_backward", dy, x, norm, statistics, nullptr, dropout, &dsum, dbranch, dweight,
                    dbias);
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
