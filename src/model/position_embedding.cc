#include "model/position_embedding.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi {

Tensor SinusoidalTable::rows(int64_t length, int d_model) const {
  const std::lock_guard lock(mutex_);
  if (table_.defined() && table_.size(0) >= length && table_.size(1) == d_model) return table_;
  Tensor table = Tensor::empty({length, d_model});
  float* out = table.data<float>();
  parallel_ranges(length, 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int c = 0; c < d_model; ++c) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(c / 2 * 2) / d_model);
        out[p * d_model + c] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
  });
  table_ = table;
  return table;
}

void add_positions(const Tensor& x, const Tensor& table, Tensor& y) {
  const int64_t length = x.size(1), width = x.size(2);
  check(table.size(0) >= length, "[positions] a table of {} rows cannot hold an input of length {}", table.size(0),
        length);
  const float* from = x.data<float>();
  const float* positions = table.data<float>();
  float* to = y.data<float>();
  parallel_ranges(x.size(0) * length, 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* p = positions + row % length * width;
      for (int64_t c = 0; c < width; ++c) to[row * width + c] = from[row * width + c] + p[c];
    }
  });
}

void add_positions_backward(const Tensor& dy, Tensor& dtable) {
  const int64_t batch = dy.size(0), length = dy.size(1), width = dy.size(2);
  const float* from = dy.data<float>();
  float* to = dtable.data<float>();
  parallel_ranges(length, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t b = 0; b < batch; ++b) {
        const float* row = from + (b * length + t) * width;
        for (int64_t c = 0; c < width; ++c) to[t * width + c] += row[c];
      }
    }
  });
}

}  // namespace alibi
