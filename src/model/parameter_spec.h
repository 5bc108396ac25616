// A parameter before it is made.
#pragma once

#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "model/initialization.h"

namespace alibi {

struct ParameterSpec {
  std::string name;
  Shape shape;
  Start start;
  bool decays = false;

  /// Its tensor holds the numbers it starts with.
  Parameter make(const Random& draws) const;
};

/// Those of LanguageModel::parameters(), in that order. Allocates none of them.
std::vector<ParameterSpec> parameter_specs(const LanguageModelConfig& config);

}  // namespace alibi
