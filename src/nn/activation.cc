#include "nn/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/activation.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

struct ValueAndSlope {
  V value, slope;
};

/// x * Phi(x)
struct Gelu {
  static HWY_INLINE V value(V x) { return hn::Mul(x, normal_cdf(x)); }
  static HWY_INLINE ValueAndSlope both(V x) {
    const V cdf = normal_cdf(x);
    return {hn::Mul(x, cdf), hn::MulAdd(x, normal_pdf(x), cdf)};
  }
};

/// x * (1 + tanh(u)) / 2 = x * sigmoid(2u) with 2u = c * (x + 0.044715 x^3), c = 2 * sqrt(2 / pi)
struct GeluTanh {
  static constexpr float c = 1.5957691216f;
  static constexpr float cubic = 0.044715f;
  static HWY_INLINE V weight(V x) {
    const V square = hn::Mul(x, x);
    return sigmoid(hn::Mul(hn::Mul(set(c), x), hn::MulAdd(set(cubic), square, set(1))));
  }
  static HWY_INLINE V value(V x) { return hn::Mul(x, weight(x)); }
  static HWY_INLINE ValueAndSlope both(V x) {
    const V s = weight(x);
    const V inner = hn::Mul(set(c), hn::MulAdd(set(3 * cubic), hn::Mul(x, x), set(1)));
    const V value = hn::Mul(x, s);
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(set(1), s)), inner, s)};
  }
};

struct Relu {
  /// NaN stays NaN.
  static HWY_INLINE V value(V x) { return hn::IfThenZeroElse(hn::Lt(x, zero()), x); }
  static HWY_INLINE ValueAndSlope both(V x) { return {value(x), hn::IfThenElseZero(hn::Gt(x, zero()), set(1))}; }
};

struct Relu2 {
  static HWY_INLINE V value(V x) { return both(x).value; }
  static HWY_INLINE ValueAndSlope both(V x) {
    const V relu = Relu::value(x);
    return {hn::Mul(relu, relu), hn::Add(relu, relu)};
  }
};

/// x * sigmoid(x)
struct Silu {
  static HWY_INLINE V value(V x) { return hn::Mul(x, sigmoid(x)); }
  static HWY_INLINE ValueAndSlope both(V x) {
    const V s = sigmoid(x);
    const V value = hn::Mul(x, s);
    return {value, hn::MulAdd(value, hn::Sub(set(1), s), s)};
  }
};

template <class Function, class T>
void plain(const T* x, int64_t n, T* y) {
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR { store(Function::value(load(x + i, lanes)), y + i, lanes); });
}

/// If y is given, it receives the recomputed value. y may be x.
template <class Function, class T>
void plain_backward(const T* dy, const T* x, int64_t n, T* dx, T* y) {
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
    const V d = load(dy + i, lanes);
    const ValueAndSlope both = Function::both(load(x + i, lanes));
    store(hn::Mul(d, both.slope), dx + i, lanes);
    if (y != nullptr) store(both.value, y + i, lanes);
  });
}

template <class Function, class T>
void gated(const T* x, int64_t rows, int64_t n, T* y) {
  for (int64_t row = 0; row < rows; ++row, x += 2 * n, y += n) {
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      store(hn::Mul(Function::value(load(x + i, lanes)), load(x + n + i, lanes)), y + i, lanes);
    });
  }
}

template <class Function, class T>
void gated_backward(const T* dy, const T* x, int64_t rows, int64_t n, T* dx, T* y) {
  for (int64_t row = 0; row < rows; ++row, dy += n, x += 2 * n, dx += 2 * n) {
    each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const V d = load(dy + i, lanes);
      const ValueAndSlope gate = Function::both(load(x + i, lanes));
      const V up = load(x + n + i, lanes);
      store(hn::Mul(hn::Mul(d, up), gate.slope), dx + i, lanes);
      store(hn::Mul(d, gate.value), dx + n + i, lanes);
      if (y != nullptr) store(hn::Mul(gate.value, up), y + row * n + i, lanes);
    });
  }
}

template <class T>
void activate_rows_as(Activation kind, const T* x, int64_t rows, int64_t n, T* y) {
  switch (kind) {
    case Activation::gelu:
      return plain<Gelu>(x, rows * n, y);
    case Activation::gelu_tanh:
      return plain<GeluTanh>(x, rows * n, y);
    case Activation::relu:
      return plain<Relu>(x, rows * n, y);
    case Activation::relu2:
      return plain<Relu2>(x, rows * n, y);
    case Activation::swiglu:
      return gated<Silu>(x, rows, n, y);
    case Activation::geglu:
      return gated<Gelu>(x, rows, n, y);
    case Activation::reglu:
      return gated<Relu>(x, rows, n, y);
  }
}

template <class T>
void activate_backward_rows_as(Activation kind, const T* dy, const T* x, int64_t rows, int64_t n, T* dx, T* y) {
  switch (kind) {
    case Activation::gelu:
      return plain_backward<Gelu>(dy, x, rows * n, dx, y);
    case Activation::gelu_tanh:
      return plain_backward<GeluTanh>(dy, x, rows * n, dx, y);
    case Activation::relu:
      return plain_backward<Relu>(dy, x, rows * n, dx, y);
    case Activation::relu2:
      return plain_backward<Relu2>(dy, x, rows * n, dx, y);
    case Activation::swiglu:
      return gated_backward<Silu>(dy, x, rows, n, dx, y);
    case Activation::geglu:
      return gated_backward<Gelu>(dy, x, rows, n, dx, y);
    case Activation::reglu:
      return gated_backward<Relu>(dy, x, rows, n, dx, y);
  }
}

/// Rows [begin, end) of tensors; y has n features and x has x_features.
template <class T>
void activate_range(Activation kind, const void* x, int64_t x_features, int64_t n, void* y, int64_t begin,
                    int64_t end) {
  activate_rows_as(kind, static_cast<const T*>(x) + begin * x_features, end - begin, n, static_cast<T*>(y) + begin * n);
}
void activate_rows(Activation kind, DType dtype, const void* x, int64_t x_features, int64_t n, void* y, int64_t begin,
                   int64_t end) {
  dtype == DType::bfloat16 ? activate_range<bfloat16>(kind, x, x_features, n, y, begin, end)
                           : activate_range<float>(kind, x, x_features, n, y, begin, end);
}

template <class T>
void activate_backward_range(Activation kind, const void* dy, const void* x, int64_t x_features, int64_t n, void* dx,
                             void* y, int64_t begin, int64_t end) {
  activate_backward_rows_as(kind, static_cast<const T*>(dy) + begin * n, static_cast<const T*>(x) + begin * x_features,
                            end - begin, n, static_cast<T*>(dx) + begin * x_features,
                            y != nullptr ? static_cast<T*>(y) + begin * n : nullptr);
}
void activate_backward_rows(Activation kind, DType dtype, const void* dy, const void* x, int64_t x_features, int64_t n,
                            void* dx, void* y, int64_t begin, int64_t end) {
  dtype == DType::bfloat16 ? activate_backward_range<bfloat16>(kind, dy, x, x_features, n, dx, y, begin, end)
                           : activate_backward_range<float>(kind, dy, x, x_features, n, dx, y, begin, end);
}

template <class T>
void gate_as(const T* gate, const T* x, int64_t n, T* y) {
  each_vector(n, [&](int64_t i, auto lanes)
                     HWY_ATTR { store(hn::Mul(sigmoid(load(gate + i, lanes)), load(x + i, lanes)), y + i, lanes); });
}
/// Elements [begin, end).
void gate_range(DType dtype, const void* gate, const void* x, void* y, int64_t begin, int64_t end) {
  const auto as = [&](auto type) HWY_ATTR {
    using T = decltype(type);
    gate_as(static_cast<const T*>(gate) + begin, static_cast<const T*>(x) + begin, end - begin,
            static_cast<T*>(y) + begin);
  };
  dtype == DType::bfloat16 ? as(bfloat16()) : as(0.0f);
}

template <class T>
void gate_backward_as(const T* dy, const T* gate, const T* x, int64_t n, T* dx, T* dgate, T* y) {
  each_vector(n, [&](int64_t i, auto lanes) HWY_ATTR {
    const V d = load(dy + i, lanes), s = sigmoid(load(gate + i, lanes));
    const V value = hn::Mul(s, load(x + i, lanes));
    store(hn::Mul(d, s), dx + i, lanes);
    store(hn::Mul(hn::Mul(d, value), hn::Sub(set(1), s)), dgate + i, lanes);
    store(value, y + i, lanes);
  });
}
void gate_backward_range(DType dtype, const void* dy, const void* gate, const void* x, void* dx, void* dgate, void* y,
                         int64_t begin, int64_t end) {
  const auto as = [&](auto type) HWY_ATTR {
    using T = decltype(type);
    gate_backward_as(static_cast<const T*>(dy) + begin, static_cast<const T*>(gate) + begin,
                     static_cast<const T*>(x) + begin, end - begin, static_cast<T*>(dx) + begin,
                     static_cast<T*>(dgate) + begin, static_cast<T*>(y) + begin);
  };
  dtype == DType::bfloat16 ? as(bfloat16()) : as(0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {
HWY_EXPORT(activate_rows);
HWY_EXPORT(activate_backward_rows);
HWY_EXPORT(gate_range);
HWY_EXPORT(gate_backward_range);

/// Elements per task.
constexpr int64_t gate_grain = 16384;
}  // namespace

bool is_gated(Activation kind) {
  return kind == Activation::swiglu || kind == Activation::geglu || kind == Activation::reglu;
}

void activate(Activation kind, const Tensor& x, Tensor& y) {
  const Rows out = rows_of("activate", "y", y);
  const Rows in{out.rows, is_gated(kind) ? 2 * out.features : out.features};
  check_rows("activate", "x", x, in, y.dtype());
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(activate_rows);
  core::parallel_ranges(out.rows, rows_per_task(out.features), [&](int64_t begin, int64_t end) {
    kernel(kind, x.dtype(), x.raw(), in.features, out.features, y.raw(), begin, end);
  });
}

void activate_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx, Tensor* y) {
  const Rows out = rows_of("activate_backward", "dy", dy);
  const Rows in{out.rows, is_gated(kind) ? 2 * out.features : out.features};
  check_rows("activate_backward", "x", x, in, dy.dtype());
  check_rows("activate_backward", "dx", dx, in, dy.dtype());
  if (y != nullptr) check_rows("activate_backward", "y", *y, out, dy.dtype());
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(activate_backward_rows);
  core::parallel_ranges(out.rows, rows_per_task(out.features), [&](int64_t begin, int64_t end) {
    kernel(kind, x.dtype(), dy.raw(), x.raw(), in.features, out.features, dx.raw(), y != nullptr ? y->raw() : nullptr,
           begin, end);
  });
}

void apply_gate(const Tensor& gate, const Tensor& x, Tensor& y) {
  const Rows rows = rows_of("apply_gate", "x", x);
  check_rows("apply_gate", "gate", gate, rows, x.dtype());
  check_rows("apply_gate", "y", y, rows, x.dtype());
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(gate_range);
  core::parallel_ranges(x.elements(), gate_grain, [&](int64_t begin, int64_t end) {
    kernel(x.dtype(), gate.raw(), x.raw(), y.raw(), begin, end);
  });
}

void apply_gate_backward(const Tensor& dy, const Tensor& gate, const Tensor& x, Tensor& dx, Tensor& dgate, Tensor& y) {
  const Rows rows = rows_of("apply_gate_backward", "dy", dy);
  check_rows("apply_gate_backward", "gate", gate, rows, dy.dtype());
  check_rows("apply_gate_backward", "x", x, rows, dy.dtype());
  check_rows("apply_gate_backward", "dx", dx, rows, dy.dtype());
  check_rows("apply_gate_backward", "dgate", dgate, rows, dy.dtype());
  check_rows("apply_gate_backward", "y", y, rows, dy.dtype());
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(gate_backward_range);
  core::parallel_ranges(x.elements(), gate_grain, [&](int64_t begin, int64_t end) {
    kernel(dy.dtype(), dy.raw(), gate.raw(), x.raw(), dx.raw(), dgate.raw(), y.raw(), begin, end);
  });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
