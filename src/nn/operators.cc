#include "nn/operators.h"

namespace alibi::nn {

core::PerDevice<Operators>& device_operators() {
  static core::PerDevice<Operators> operators;
  return operators;
}

void CommonDevice::look_at(const Tensor& tensor) {
  if (!tensor.defined()) return;
  if (first_ == nullptr) first_ = &tensor;
  core::check_same_device(operation_, *first_, tensor);
}

void CommonDevice::look_at(const AdaptiveWeights& weights) {
  look_at(weights.tables);
  look_at(weights.projections);
}

void CommonDevice::look_at(const NormParameters& norm) {
  look_at(norm.weight);
  look_at(norm.bias);
}

void CommonDevice::look_at(const NormStatistics& statistics) {
  look_at(statistics.mean);
  look_at(statistics.rstd);
}

}  // namespace alibi::nn
