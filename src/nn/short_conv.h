// A short causal depthwise convolution, which mixes each row of a sequence with the rows just before it.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// x_t += sum over j < W of weight_j * x_(t-j), in place: x [B, T, C] float32 or bfloat16 with contiguous rows, weight
/// [W, C] float32. `before` [n, C] of the type of x holds the rows before the first, where B is 1; rows before them
/// count as zeros. Undefined: there are none.
void add_short_conv(const Tensor& weight, const Tensor& before, Tensor& x);
/// dy [B, T, C], the gradient of the result, becomes that of x, in place. Adds to dweight. x is the input, without rows
/// before it.
void add_short_conv_backward(const Tensor& weight, const Tensor& x, Tensor& dy, Tensor& dweight);

}  // namespace alibi::nn
