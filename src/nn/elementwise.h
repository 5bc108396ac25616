// Sums, conversion and dropout of whole tensors.
#pragma once

#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi::nn {

/// y = a + b; each float32 or bfloat16. y may be a or b.
void add(const Tensor& a, const Tensor& b, Tensor& y);
/// y = x, rounded to nearest where y is bfloat16 and x float32.
void convert(const Tensor& x, Tensor& y);
/// The same for `count` values in a row of each, by the calling thread.
void convert_row(const void* x, DType x_type, int64_t count, void* y, DType y_type);

/// Element i is dropped if random.uniform(i) < probability; the rest is divided by 1 - probability (Srivastava et al.
/// 2014). The mask is a function of the element's index alone, so nothing is kept for the backward pass. y may be x, or
/// of the other floating-point type.
void dropout(const Tensor& x, float probability, const core::Random& random, Tensor& y);
/// The same mask and factor applied to dy; dx may be dy.
void dropout_backward(const Tensor& dy, float probability, const core::Random& random, Tensor& dx);

}  // namespace alibi::nn
