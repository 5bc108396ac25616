// Positions that are added to the input of the first layer: sinusoidal and learned.
#pragma once

#include <cstdint>
#include <mutex>

#include "alibi/tensor.h"

namespace alibi {

/// Vaswani et al. 2017, section 3.5: row p holds sin(p / 10000^(2i/d)) at 2i and cos of the same at 2i + 1.
/// Grows to the longest length asked for; safe to use from several threads.
class SinusoidalTable {
 public:
  /// At least `length` rows of d_model columns.
  Tensor rows(int64_t length, int d_model) const;

 private:
  mutable std::mutex mutex_;
  mutable Tensor table_;
};

/// y[b, t] = x[b, t] + table[t]; x [batch, length, d_model], table [>= length, d_model].
void add_positions(const Tensor& x, const Tensor& table, Tensor& y);
/// dtable[t] += sum over b of dy[b, t] (the gradient of x is dy itself).
void add_positions_backward(const Tensor& dy, Tensor& dtable);

}  // namespace alibi
