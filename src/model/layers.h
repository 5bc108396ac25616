// The layers that models are built of. Each declares its parameters and implements its passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace alibi::model {

inline const Tensor* value_of(const Parameter* parameter) { return parameter == nullptr ? nullptr : &parameter->value; }
inline Tensor* gradient_of(Parameter* parameter) { return parameter == nullptr ? nullptr : &parameter->gradient; }

/// y = x weight' + bias
struct LinearLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null without a bias

  /// Declares NAME.weight [out, in] and, if it has an initial value, NAME.bias [out]. `parts` are the names of equal
  /// parts of the outputs, for files that store them separately.
  void declare(const VisitParameter& visit, const std::string& name, int64_t out, int64_t in, Initializer weight_start,
               std::optional<Initializer> bias_start, const std::vector<std::string>& parts = {});

  void forward(const Tensor& x, Tensor& y) const { nn::linear(x, weight->operand(), value_of(bias), y); }
  /// Overwrites dx and adds to the gradients of the parameters.
  void backward(const Tensor& dy, const Tensor& x, Tensor& dx) const {
    nn::linear_backward(dy, x, weight->operand(), &dx, &weight->gradient, gradient_of(bias));
  }
  /// The two halves of backward(). The first one uses only the shape of `x`.
  void backward_to_input(const Tensor& dy, const Tensor& x, Tensor& dx) const {
    nn::linear_backward(dy, x, weight->operand(), &dx, nullptr, nullptr);
  }
  void backward_to_parameters(const Tensor& dy, const Tensor& x) const {
    nn::linear_backward(dy, x, weight->operand(), nullptr, &weight->gradient, gradient_of(bias));
  }
};

/// A norm of the kind that the configuration selects.
struct NormLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null without a bias
  float eps = 0;
  bool centered = false;
  int64_t groups = 1;  ///< NormParameters::groups

  /// Declares NAME.weight and, depending on the kind, NAME.bias, each [features].
  void declare(const VisitParameter& visit, const std::string& name, const TransformerConfig& config, int64_t features);

  nn::NormParameters parameters() const { return {weight->value, value_of(bias), eps, centered, groups}; }
};

}  // namespace alibi::model
