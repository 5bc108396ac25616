// Matrix products.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// c [m, n] = op(a) [m, k] * op(b) [k, n], or c += ... if `accumulate`; op transposes a two-axis tensor if asked to.
/// Rows may be strided, elements of a row may not. float32, or bfloat16 a and b with c of either type, summed in
/// float32. A transposed b may be of any type of weights (nn/weights.h), which is never copied as a whole. The same
/// bits at any number of threads.
void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, Tensor& c, bool accumulate);

/// y [rows, out] = x [rows, in] * weight' + bias, with weight [out, in] and bias [out] as in PyTorch. x and y may have
/// more axes; all except the last one count as rows.
void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y);

/// Overwrites dx, and adds to dweight and dbias. Each of the three may be null.
void linear_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, Tensor* dx, Tensor* dweight,
                     Tensor* dbias);

}  // namespace alibi::nn
