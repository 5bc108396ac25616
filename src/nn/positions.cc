#include "nn/positions.h"

#include <cmath>

#include "core/parallel.h"
#include "nn/operators.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

/// Checks what both passes are given and returns the rows of the table.
Rows checked_rows(const char* operation, const Tensor& x, const Tensor& table) {
  check(x.axes() == 3, "[{}] x has shape {}, expected [batch, length, features]", operation, to_string(x.shape()));
  const Rows rows{x.size(1), x.size(2)};
  check_rows(operation, "x", x, {x.size(0) * rows.rows, rows.features}, DType::float32);
  check_rows(operation, "the table", table, rows, DType::float32);
  return rows;
}

}  // namespace

void sinusoids(Tensor& table) {
  if (ran_elsewhere(&Operators::sinusoids, "sinusoids", table)) return;
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
  if (ran_elsewhere(&Operators::add_positions, "add_positions", x, table, y)) return;
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
  if (ran_elsewhere(&Operators::add_positions_backward, "add_positions_backward", dy, dtable)) return;
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
