#include "model/layers.h"

#include <utility>

#include "nn/linear.h"

namespace alibi::model {

void LinearLayer::declare(const VisitParameter& visit, const std::string& name, int64_t out, int64_t in,
                          Initializer weight_start, std::optional<Initializer> bias_start,
                          const std::vector<std::string>& parts) {
  const auto suffixed = [&](const char* suffix) {
    std::vector<std::string> names;
    for (const std::string& part : parts) names.push_back(part + suffix);
    return names;
  };
  visit(weight, {.name = name + ".weight",
                 .shape = {out, in},
                 .start = std::move(weight_start),
                 .decays = true,
                 .is_operand = true,
                 .is_matrix = true,
                 .parts = suffixed(".weight")});
  if (!bias_start) return;
  visit(bias, {.name = name + ".bias", .shape = {out}, .start = *bias_start, .parts = suffixed(".bias")});
}

void LinearLayer::forward(const Tensor& x, Tensor& y) const { nn::linear(x, weight->operand(), value_of(bias), y); }

void LinearLayer::backward(const Tensor& dy, const Tensor& x, Tensor& dx) const {
  backward_to_input(dy, x, dx);
  backward_to_parameters(dy, x);
}

void LinearLayer::backward_to_input(const Tensor& dy, const Tensor& x, Tensor& dx) const {
  nn::linear_backward(dy, x, weight->operand(), &dx, nullptr, nullptr);
}

void LinearLayer::backward_to_parameters(const Tensor& dy, const Tensor& x) const {
  nn::linear_backward(dy, x, weight->operand(), nullptr, &weight->gradient, gradient_of(bias));
}

void NormLayer::declare(const VisitParameter& visit, const std::string& name, const TransformerConfig& config,
                        int64_t features) {
  eps = config.block.norm_eps;
  centered = config.block.norm == Norm::layer_norm;
  visit(weight, {.name = name + ".weight", .shape = {features}, .start = Initializer::constant(1)});
  const NormBias wanted = config.block.norm_bias;
  const bool has_bias = wanted == NormBias::always || (wanted == NormBias::same && config.block.bias);
  if (!has_bias || !centered) return;
  visit(bias, {.name = name + ".bias", .shape = {features}, .start = Initializer::constant(0)});
}

}  // namespace alibi::model
