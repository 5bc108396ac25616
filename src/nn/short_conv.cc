#include "nn/short_conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/short_conv.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

#ifndef ALIBI_NN_SHORT_CONV_ARGS_
#define ALIBI_NN_SHORT_CONV_ARGS_
namespace alibi::nn {
/// Some columns of a sequence. Rows are `stride` elements apart.
struct ConvColumns {
  const void* before;  ///< rows that precede the sequence, the last one just before it
  int64_t rows_before, rows, width, taps, stride;
  const float* weight;
};
}  // namespace alibi::nn
#endif

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

// The rows are visited from the last one to the first, so that each finds the input of those before it.
template <class T>
void add_columns(const ConvColumns& c, T* x) {
  const T* before = static_cast<const T*>(c.before);
  each_vector(c.width, [&](int64_t i, auto lanes) HWY_ATTR {
    for (int64_t t = c.rows; t-- > 0;) {
      V y = load(x + t * c.stride + i, lanes);
      for (int64_t j = 0; j < c.taps && t - j >= -c.rows_before; ++j) {
        const T* const row = t >= j ? x + (t - j) * c.stride : before + (c.rows_before + t - j) * c.stride;
        y = hn::MulAdd(load(c.weight + j * c.stride + i, lanes), load(row + i, lanes), y);
      }
      store(y, x + t * c.stride + i, lanes);
    }
  });
}
void add_conv(const ConvColumns& columns, DType type, void* x) {
  if (type == DType::bfloat16) return add_columns(columns, static_cast<bfloat16*>(x));
  add_columns(columns, static_cast<float*>(x));
}

// Visited from the first row to the last, each finds the gradients of those after it.
template <class T>
void columns_backward(const ConvColumns& c, const T* x, T* dy, float* dweight) {
  each_vector(c.width, [&](int64_t i, auto lanes) HWY_ATTR {
    for (int64_t j = 0; j < c.taps; ++j) {
      V sum = load(dweight + j * c.stride + i, lanes);
      for (int64_t t = j; t < c.rows; ++t) {
        sum = hn::MulAdd(load(dy + t * c.stride + i, lanes), load(x + (t - j) * c.stride + i, lanes), sum);
      }
      store(sum, dweight + j * c.stride + i, lanes);
    }
    for (int64_t t = 0; t < c.rows; ++t) {
      V dx = load(dy + t * c.stride + i, lanes);
      for (int64_t j = 0; j < c.taps && t + j < c.rows; ++j) {
        dx = hn::MulAdd(load(c.weight + j * c.stride + i, lanes), load(dy + (t + j) * c.stride + i, lanes), dx);
      }
      store(dx, dy + t * c.stride + i, lanes);
    }
  });
}
void conv_backward(const ConvColumns& columns, DType type, const void* x, void* dy, float* dweight) {
  if (type == DType::bfloat16) {
    return columns_backward(columns, static_cast<const bfloat16*>(x), static_cast<bfloat16*>(dy), dweight);
  }
  columns_backward(columns, static_cast<const float*>(x), static_cast<float*>(dy), dweight);
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstddef>

#include "core/check.h"
#include "core/isa.h"
#include "core/parallel.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(add_conv);
HWY_EXPORT(conv_backward);

constexpr int64_t kColumnsPerTask = 64;

void check_sequences(const char* operation, const Tensor& weight, const Tensor& x) {
  check(x.axes() == 3 && (x.dtype() == DType::float32 || x.dtype() == DType::bfloat16) && x.stride(2) == 1 &&
            x.stride(1) == x.size(2),
        "[{}] x is {} {}, expected float32 or bfloat16 [batch, length, channels] with contiguous rows", operation,
        name_of(x.dtype()), to_string(x.shape()));
  check(weight.axes() == 2 && weight.dtype() == DType::float32 && weight.contiguous() && weight.size(1) == x.size(2),
        "[{}] weight is {} {}, expected float32 [width, {}]", operation, name_of(weight.dtype()),
        to_string(weight.shape()), x.size(2));
}

/// Calls run(columns, first column) for parts of the columns in parallel.
template <class Run>
void each_column_part(const Tensor& weight, const Tensor& x, const Run& run) {
  core::prepare_dispatch();
  core::parallel_ranges(x.size(2), kColumnsPerTask, [&](int64_t begin, int64_t end) {
    run(ConvColumns{nullptr, 0, x.size(1), end - begin, weight.size(0), x.size(2), weight.data<float>() + begin},
        begin);
  });
}

std::byte* element(const Tensor& x, int64_t batch, int64_t column) {
  return static_cast<std::byte*>(x.raw()) + (batch * x.stride(0) + column) * static_cast<int64_t>(size_of(x.dtype()));
}

}  // namespace

void add_short_conv(const Tensor& weight, const Tensor& before, Tensor& x) {
  check_sequences("add_short_conv", weight, x);
  check(!before.defined() || (x.size(0) == 1 && before.axes() == 2 && before.size(1) == x.size(2) &&
                              before.dtype() == x.dtype() && before.contiguous()),
        "[add_short_conv] the rows before are {} {}, expected {} [rows, {}] before one sequence",
        name_of(before.dtype()), to_string(before.shape()), name_of(x.dtype()), x.size(2));
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_conv);
  each_column_part(weight, x, [&](ConvColumns columns, int64_t first) {
    if (before.defined()) {
      columns.rows_before = before.size(0);
      columns.before = static_cast<std::byte*>(before.raw()) + first * static_cast<int64_t>(size_of(x.dtype()));
    }
    for (int64_t b = 0; b < x.size(0); ++b) kernel(columns, x.dtype(), element(x, b, first));
  });
}

void add_short_conv_backward(const Tensor& weight, const Tensor& x, Tensor& dy, Tensor& dweight) {
  check_sequences("add_short_conv_backward", weight, x);
  check_sequences("add_short_conv_backward", dweight, dy);
  check(dy.shape() == x.shape() && dy.dtype() == x.dtype() && dweight.shape() == weight.shape(),
        "[add_short_conv_backward] dy is {} {} and dweight {}, expected those of x, {} {}, and of weight, {}",
        name_of(dy.dtype()), to_string(dy.shape()), to_string(dweight.shape()), name_of(x.dtype()),
        to_string(x.shape()), to_string(weight.shape()));
  const auto kernel = HWY_DYNAMIC_DISPATCH(conv_backward);
  each_column_part(weight, x, [&](const ConvColumns& columns, int64_t first) {
    for (int64_t b = 0; b < x.size(0); ++b) {
      kernel(columns, x.dtype(), element(x, b, first), element(dy, b, first), dweight.data<float>() + first);
    }
  });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
