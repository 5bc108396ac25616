// Scaling and clamping of whole tensors; copies between a matrix and some of its columns.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// y = factor * x; y may be x. All tensors here are float32 or bfloat16.
void scale(const Tensor& x, float factor, Tensor& y);

/// Limits x to [-limit, limit] in place.
void clamp(Tensor& x, float limit);
/// dx = dy where the clamped value y lies within the limits, and 0 elsewhere, in place.
void clamp_backward(const Tensor& y, float limit, Tensor& dy);

/// y [rows, n] = the columns of x [rows, columns] from `first` on.
void copy_columns(const Tensor& x, int64_t first, Tensor& y);
/// The columns of y [rows, columns] from `first` on = x [rows, n].
void set_columns(const Tensor& x, int64_t first, Tensor& y);

}  // namespace alibi::nn
