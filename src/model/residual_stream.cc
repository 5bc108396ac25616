#include "model/residual_stream.h"

#include <utility>

#include "nn/elementwise.h"

namespace alibi::model {

void ResidualNorm::each_statistic(const TransformerConfig& config, int64_t rows, const VisitTensor& visit) {
  if (config.block.norm == Norm::layer_norm) visit(true, statistics.mean, {rows}, DType::float32);
  visit(true, statistics.rstd, {rows}, DType::float32);
}

void ResidualStream::normalize(const NormLayer& norm, ResidualNorm& at, Tensor& y) {
  at.returned = std::exchange(added_, {});
  const Tensor* returning = at.returned ? &branch : nullptr;
  if (returning != nullptr && branch.dtype() != y.dtype()) {  // bf16 inference, whose result is float32
    nn::add(x_, branch, x_);
    returning = nullptr;
  }
  // In float32 the stream continues in the memory of the sum, without a copy.
  const bool goes_on_from_kept = at.x.defined() && at.x.dtype() == DType::float32;
  Tensor sum = goes_on_from_kept ? at.x : x_;
  nn::residual_norm(x_, returning, at.returned.value_or(nn::BranchDropout()), norm.parameters(), sum,
                    at.x.defined() && !goes_on_from_kept ? &at.x : nullptr, y, at.statistics);
  x_ = sum;
  if (normed_.defined()) {
    nn::convert(y, normed_);
    x_ = normed_;
  }
  if (on_stream) on_stream(x_);
}

void ResidualStream::normalize_branch(const NormLayer& norm, nn::NormStatistics& statistics) {
  nn::add(x_, branch, branch);
  nn::norm(branch, norm.parameters(), branch, statistics);
}

void ResidualGradient::normalize_backward(Tensor& dy, const NormLayer& norm, const ResidualNorm& at) {
  if (residual_ == Residual::normed) {  // the branch read this output, which was also the stream from there on
    nn::add(dx_, dy, dy);
    dx_.fill(0);
  }
  through_norm(dy, norm, at);
}

void ResidualGradient::final_norm_backward(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at) {
  dx_.fill(0);
  through_norm(dy, norm, at);
}

void ResidualGradient::through_norm(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at) {
  nn::residual_norm_backward(dy, at.x, norm.parameters(), at.statistics, at.returned.value_or(nn::BranchDropout()), dx_,
                             at.returned && branch_.defined() ? &branch_ : nullptr, &norm.weight->gradient,
                             gradient_of(norm.bias));
}

void ResidualStream::end(ResidualNorm& at, Tensor& y) {
  at.returned = std::exchange(added_, {});
  if (!at.returned) {
    nn::convert(x_, y);
  } else {
    if (at.returned->probability > 0) nn::dropout(branch, at.returned->probability, at.returned->random, branch);
    nn::add(x_, branch, y);
  }
  if (on_stream) on_stream(y);
}

void ResidualGradient::end_backward(const Tensor& dy, const ResidualNorm& at) {
  nn::convert(dy, dx_);
  if (at.returned && branch_.defined()) {
    nn::dropout_backward(dx_, at.returned->probability, at.returned->random, branch_);
  }
}

}  // namespace alibi::model
