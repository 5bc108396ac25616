// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019). All axes but the last count as rows.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// y = (x - mean) * rstd * weight + bias with the mean and the reciprocal standard deviation of each row, which are
/// kept in mean and rstd (float32 [rows]) for the backward pass. weight and bias are [features].
void layer_norm(const Tensor& x, const Tensor& weight, const Tensor* bias, float eps, Tensor& y, Tensor& mean,
                Tensor& rstd);

/// dx is overwritten (and may be dy); dweight and dbias are added to, and may be null.
void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& rstd, Tensor& dx, Tensor* dweight, Tensor* dbias);

/// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps) of each row.
void rms_norm(const Tensor& x, const Tensor& weight, float eps, Tensor& y, Tensor& rstd);

/// dx is overwritten (and may be dy); dweight is added to, and may be null.
void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, Tensor& dx,
                       Tensor* dweight);

}  // namespace alibi::nn
