// Scaling and clamping of whole tensors; copies between a matrix and some of its columns.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// y = factor * x; y may be x. All tensors here are float32 or bfloat16.
void scale(const Tensor& x, float factor, Tensor& y);

/// x is limited to [-limit, limit], in place.
void clamp(Tensor& x, float limit);
/// dx = dy where the clamped value y lies within the limits, else 0, in place.
void clamp_backward(const Tensor& y, float limit, Tensor& dy);

/// y [rows, n] = x [rows, columns] from column `first` on
void copy_columns(const Tensor& x, int64_t first, Tensor& y);
/// y [rows, columns] from column `first` on = x [rows, n]
void set_columns(const Tensor& x, int64_t first, Tensor& y);

}  // namespace alibi::nn
