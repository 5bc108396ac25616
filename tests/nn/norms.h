// The two norms by their own arguments.
#pragma once

#include "nn/norm.h"

namespace alibi::nn {

inline void layer_norm(const Tensor& x, const Tensor& weight, const Tensor* bias, float eps, Tensor& y, Tensor& mean,
                       Tensor& rstd) {
  NormStatistics statistics{mean, rstd};
  norm(x, {weight, bias, eps, true}, y, statistics);
}

inline void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& rstd, Tensor& dx, Tensor* dweight, Tensor* dbias) {
  norm_backward(dy, x, {weight, nullptr, 0, true}, {mean, rstd}, dx, dweight, dbias);
}

inline void rms_norm(const Tensor& x, const Tensor& weight, float eps, Tensor& y, Tensor& rstd) {
  NormStatistics statistics{{}, rstd};
  norm(x, {weight, nullptr, eps, false}, y, statistics);
}

inline void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, Tensor& dx,
                              Tensor* dweight) {
  norm_backward(dy, x, {weight, nullptr, 0, false}, {{}, rstd}, dx, dweight, nullptr);
}

}  // namespace alibi::nn
