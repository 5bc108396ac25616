#include "nn/positions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/positions.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// (y1, y2) = (x1 * cos - x2 * sin, x2 * cos + x1 * sin), with x1 the first half of a head and x2 the second.
template <class T>
void rotate_as(const T* x, const float* cosines, const float* sines, int64_t half, T* y) {
  each_vector(half, [&](int64_t i, auto lanes) HWY_ATTR {
    const V x1 = load(x + i, lanes), x2 = load(x + half + i, lanes);
    const V c = load(cosines + i, lanes), s = load(sines + i, lanes);
    store(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), y + i, lanes);
    store(hn::MulAdd(x1, s, hn::Mul(x2, c)), y + half + i, lanes);
  });
}

/// `heads` heads of one row, x_stride and y_stride apart.
void rotate_heads(const void* x, int64_t x_stride, void* y, int64_t y_stride, DType dtype, int64_t heads,
                  const float* cosines, const float* sines, int64_t half) {
  for (int64_t h = 0; h < heads; ++h) {
    if (dtype == DType::bfloat16) {
      rotate_as(static_cast<const bfloat16*>(x) + h * x_stride, cosines, sines, half,
                static_cast<bfloat16*>(y) + h * y_stride);
    } else {
      rotate_as(static_cast<const float*>(x) + h * x_stride, cosines, sines, half,
                static_cast<float*>(y) + h * y_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(rotate_heads);

/// Cosines and sines of one position after the other. They are computed exactly every `restart` positions, and rotated
/// by one position's angle between, in float64. The error of so few rotations is about 1e-14.
class Angles {
 public:
  static constexpr int64_t restart = 64;

  Angles(const Frequencies& frequencies, int64_t first_position)
      : magnitude_(frequencies.magnitude), turn_(frequencies.of_pairs.size()), now_(turn_.size()) {
    for (size_t i = 0; i < turn_.size(); ++i) {
      const double frequency = frequencies.of_pairs[i];
      turn_[i] = {std::cos(frequency), std::sin(frequency)};
      const double angle = static_cast<double>(first_position) * frequency;
      now_[i] = {std::cos(angle), std::sin(angle)};
    }
  }

  void write(float* cosines, float* sines) const {
    for (size_t i = 0; i < now_.size(); ++i) {
      cosines[i] = static_cast<float>(magnitude_ * now_[i].cosine);
      sines[i] = static_cast<float>(magnitude_ * now_[i].sine);
    }
  }

  void advance() {
    for (size_t i = 0; i < now_.size(); ++i) {
      const auto [c, s] = now_[i];
      now_[i] = {c * turn_[i].cosine - s * turn_[i].sine, s * turn_[i].cosine + c * turn_[i].sine};
    }
  }

 private:
  struct Point {
    double cosine, sine;
  };
  double magnitude_;
  std::vector<Point> turn_, now_;
};

void check_heads(const char* operation, const char* name, const Tensor& tensor) {
  check(tensor.axes() == 4 && is_floating(tensor.dtype()),
        "[{}] {} is {} {}, expected floating-point [batch, length, heads, head_dim]", operation, name,
        name_of(tensor.dtype()), to_string(tensor.shape()));
  check(tensor.size(3) % 2 == 0, "[{}] head_dim is {}, expected an even number", operation, tensor.size(3));
  check(tensor.stride(3) == 1 || tensor.size(3) <= 1, "[{}] {} has strides {}, expected a unit inner stride", operation,
        name, to_string(tensor.strides()));
}

void rotate(const char* operation, const Tensor& x, int64_t position_offset, const Frequencies& frequencies,
            Tensor& y) {
  check_heads(operation, "x", x);
  check_heads(operation, "y", y);
  check(x.shape() == y.shape() && x.dtype() == y.dtype(), "[{}] x is {} {}, y is {} {}, expected the same", operation,
        name_of(x.dtype()), to_string(x.shape()), name_of(y.dtype()), to_string(y.shape()));
  const int64_t batch = x.size(0), length = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  check(std::ssize(frequencies.of_pairs) == half, "[{}] there are {} frequencies, expected {}", operation,
        frequencies.of_pairs.size(), half);
  const auto bytes = static_cast<int64_t>(size_of(x.dtype()));
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(rotate_heads);
  core::parallel_ranges(length, Angles::restart, [&](int64_t begin, int64_t end) {
    Angles angles(frequencies, position_offset + begin);
    std::vector<float> cosines(static_cast<size_t>(half)), sines(cosines.size());
    for (int64_t row = begin; row < end; ++row, angles.advance()) {
      angles.write(cosines.data(), sines.data());
      for (int64_t b = 0; b < batch; ++b) {
        kernel(static_cast<const char*>(x.raw()) + (b * x.stride(0) + row * x.stride(1)) * bytes, x.stride(2),
               static_cast<char*>(y.raw()) + (b * y.stride(0) + row * y.stride(1)) * bytes, y.stride(2), x.dtype(),
               heads, cosines.data(), sines.data(), half);
      }
    }
  });
}

/// Checks the arguments of both passes and returns the rows of the table.
Rows checked_rows(const char* operation, const Tensor& x, const Tensor& table) {
  check(x.axes() == 3, "[{}] x has shape {}, expected [batch, length, features]", operation, to_string(x.shape()));
  const Rows rows{x.size(1), x.size(2)};
  check_rows(operation, "x", x, {x.size(0) * rows.rows, rows.features}, DType::float32);
  check_rows(operation, "the table", table, rows, DType::float32);
  return rows;
}

}  // namespace

Frequencies rotary_frequencies(int64_t head_dim, double theta, double scale) {
  check(theta > 0, "[rotary] theta is {}, expected a positive number", theta);
  const int64_t half = head_dim / 2;
  Frequencies found{.of_pairs = std::vector<double>(static_cast<size_t>(half))};
  for (size_t i = 0; i < found.of_pairs.size(); ++i) {
    found.of_pairs[i] = scale * std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
  }
  return found;
}

void rotary(const Tensor& x, int64_t position_offset, const Frequencies& frequencies, Tensor& y) {
  rotate("rotary", x, position_offset, frequencies, y);
}

void rotary_backward(const Tensor& dy, int64_t position_offset, float theta, Tensor& dx) {
  check_heads("rotary_backward", "dy", dy);
  rotate("rotary_backward", dy, position_offset, rotary_frequencies(dy.size(3), static_cast<double>(theta), -1), dx);
}

void sinusoids(Tensor& table) {
  const Rows shape = rows_of("sinusoids", "the table", table);
  check_rows("sinusoids", "the table", table, shape, DType::float32);
  const auto features = static_cast<double>(shape.features);
  float* out = table.data<float>();
  core::parallel_ranges(shape.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t c = 0; c < shape.features; ++c) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(c / 2 * 2) / features);
        out[p * shape.features + c] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
  });
}

void add_positions(const Tensor& x, const Tensor& table, Tensor& y) {
  const auto [length, width] = checked_rows("add_positions", x, table);
  check_rows("add_positions", "y", y, {x.size(0) * length, width}, DType::float32);
  const float* from = x.data<float>();
  const float* positions = table.data<float>();
  float* to = y.data<float>();
  core::parallel_ranges(x.size(0) * length, 256, [=, length = length, width = width](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* p = positions + row % length * width;
      for (int64_t c = 0; c < width; ++c) to[row * width + c] = from[row * width + c] + p[c];
    }
  });
}

void add_positions_backward(const Tensor& dy, Tensor& dtable) {
  const auto [length, width] = checked_rows("add_positions_backward", dy, dtable);
  const int64_t batch = dy.size(0);
  const float* from = dy.data<float>();
  float* to = dtable.data<float>();
  core::parallel_ranges(length, 16, [=, length = length, width = width](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t b = 0; b < batch; ++b) {
        const float* row = from + (b * length + t) * width;
        for (int64_t c = 0; c < width; ++c) to[t * width + c] += row[c];
      }
    }
  });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
