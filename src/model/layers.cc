#include "model/layers.h"

#include <utility>

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
