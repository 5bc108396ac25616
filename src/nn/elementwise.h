// Sums, conversion, dropout, powers of two and random values of whole tensors.
#pragma once

#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi::nn {

/// y = a + b; each float32 or bfloat16. y may be a or b.
void add(const Tensor& a, const Tensor& b, Tensor& y);
/// y = x. Rounds to nearest if y is bfloat16 and x float32.
void convert(const Tensor& x, Tensor& y);
/// convert() for `count` contiguous values, in the calling thread.
void convert_row(const void* x, DType x_type, int64_t count, void* y, DType y_type);

/// Element i is dropped if random.uniform(i) < probability; the others are divided by 1 - probability (Srivastava et
/// al. 2014). The mask is a function of the element's index only, so nothing is kept for the backward pass. y may be x,
/// or have the other floating-point type.
void dropout(const Tensor& x, float probability, const core::Random& random, Tensor& y);
/// Applies the same mask and factor to dy. dx may be dy.
void dropout_backward(const Tensor& dy, float probability, const core::Random& random, Tensor& dx);

/// y = 2^x, for parameters that must stay positive, whose exponents are trained. x is clamped to [least, most];
/// contiguous float32.
void exp2(const Tensor& x, float least, float most, Tensor& y);
/// dx += ln 2 * 2^x * dy for x within [least, most]. Outside, the gradient is zero.
void exp2_backward(const Tensor& dy, const Tensor& x, float least, float most, Tensor& dx);

// Element i of a random tensor is a function of `random` and i.

/// y = independent draws from N(0, deviation^2); contiguous float32.
void fill_normal(const core::Random& random, float deviation, Tensor& y);
/// y = independent draws from [-bound, bound).
void fill_uniform(const core::Random& random, float bound, Tensor& y);

}  // namespace alibi::nn
