// The layers that models are built of: each declares its parameters and has its passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "nn/norm.h"

namespace alibi::model {

inline const Tensor* value_of(const Parameter* parameter) { return parameter == nullptr ? nullptr : &parameter->value; }
inline Tensor* gradient_of(Parameter* parameter) { return parameter == nullptr ? nullptr : &parameter->gradient; }

/// y = x weight' + bias
struct LinearLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null: there is none

  /// NAME.weight [out, in] and, if it starts as something, NAME.bias [out]. `parts`: names of equal parts of the
  /// outputs, where files keep them apart.
  void declare(const VisitParameter& visit, const std::string& name, int64_t out, int64_t in, Initializer weight_start,
               std::optional<Initializer> bias_start, const std::vector<std::string>& parts = {});

  void forward(const Tensor& x, Tensor& y) const;
  /// dx is overwritten, the gradients of the parameters are added to.
  void backward(const Tensor& dy, const Tensor& x, Tensor& dx) const;
  /// The two halves of it. `x` gives the first its shape alone.
  void backward_to_input(const Tensor& dy, const Tensor& x, Tensor& dx) const;
  void backward_to_parameters(const Tensor& dy, const Tensor& x) const;
};

/// A norm of the kind that a configuration asks for.
struct NormLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null: there is none
  float eps = 0;
  bool centered = false;

  /// NAME.weight and perhaps NAME.bias, [features].
  void declare(const VisitParameter& visit, const std::string& name, const TransformerConfig& config, int64_t features);

  nn::NormParameters parameters() const { return {weight->value, value_of(bias), eps, centered}; }
};

}  // namespace alibi::model
