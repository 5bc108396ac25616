// Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019). All axes except the last one count as rows.
#pragma once

#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi::nn {

/// Parameters of either norm.
struct NormParameters {
  const Tensor& weight;  ///< [groups * features]
  const Tensor* bias;    ///< [groups * features] or null; null for the RMS norm
  float eps;
  bool centered;       ///< true for the layer norm, which subtracts the mean
  int64_t groups = 1;  ///< row i has the weights and the bias of group i % groups, such as those of a head
};

/// Statistics that a norm keeps for each row. mean is undefined for the RMS norm.
struct NormStatistics {
  Tensor mean, rstd;  ///< float32 [rows]
};

/// Dropout of a branch before it is added to the residual stream; see nn::dropout.
struct BranchDropout {
  float probability = 0;
  core::Random random{0};
};

/// y = norm(x), with the statistics of each row. x and y have one data type and may be the same.
///   layer norm: y = (x - mean) * rstd * weight + bias, with the mean and the reciprocal standard deviation of the row
///   RMS norm:   y = x * rstd * weight + bias, with rstd = 1 / sqrt(mean(x^2) + eps)
void norm(const Tensor& x, const NormParameters& norm, Tensor& y, NormStatistics& statistics);
/// Overwrites dx, which may be dy. Adds to dweight and dbias, which may be null.
void norm_backward(const Tensor& dy, const Tensor& x, const NormParameters& norm, const NormStatistics& statistics,
                   Tensor& dx, Tensor* dweight, Tensor* dbias);

/// Adds a branch to the residual stream and normalizes the sum for the next branch, in one pass over memory:
///   sum = x + dropout(branch);  kept = sum;  y = norm(sum)
/// x and sum are float32 and may be the same. branch (or null: nothing is added) and y are float32 or bfloat16. kept
/// (or null) has y's type and is a copy for the backward pass; the norm then reads this copy.
void residual_norm(const Tensor& x, const Tensor* branch, const BranchDropout& dropout, const NormParameters& norm,
                   Tensor& sum, Tensor* kept, Tensor& y, NormStatistics& statistics);

/// y = norm(x) from known statistics. The backward pass uses it to recompute y instead of keeping it.
void normalize(const Tensor& x, const NormParameters& norm, const NormStatistics& statistics, Tensor& y);

/// Backward pass of residual_norm(): dsum += the gradient of `sum` through the norm, where x is `kept`. dbranch (or
/// null) = dsum where dropout kept the branch, scaled. dsum is float32; dy, x and dbranch have one type.
void residual_norm_backward(const Tensor& dy, const Tensor& x, const NormParameters& norm,
                            const NormStatistics& statistics, const BranchDropout& dropout, Tensor& dsum,
                            Tensor* dbranch, Tensor* dweight, Tensor* dbias);

}  // namespace alibi::nn
