#include "model/parameter_spec.h"

#include <iterator>

#include "model/transformer_layout.h"
#include "model/vocabulary.h"

namespace alibi {

Parameter ParameterSpec::make(const Random& draws) const {
  Parameter parameter{name, Tensor::empty(shape), Tensor(), decays};
  initialize(parameter.value, start, draws);
  return parameter;
}

std::vector<ParameterSpec> parameter_specs(const LanguageModelConfig& config) {
  std::vector<ParameterSpec> specs = vocabulary_specs(config);
  TransformerLayout layout(config.transformer);
  std::move(layout.specs.begin(), layout.specs.end(), std::back_inserter(specs));
  return specs;
}

}  // namespace alibi
