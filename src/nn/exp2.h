// Powers of two: of exponents that are learned in place of numbers which must stay positive.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// y = 2^x, with x kept between `least` and `most`; contiguous float32.
void exp2(const Tensor& x, float least, float most, Tensor& y);
/// dx += ln 2 * 2^x * dy where x lies between them; what lies beyond has no gradient.
void exp2_backward(const Tensor& dy, const Tensor& x, float least, float most, Tensor& dx);

}  // namespace alibi::nn
