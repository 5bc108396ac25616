// Whether a configuration can be a model; fields are called what they are called where their values stand.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "alibi/language_model.h"

namespace alibi {

struct ConfigWords {
  /// "heads" -> "n_heads". The fields of AdaptiveConfig are "adaptive.cutoffs" and so on.
  std::function<std::string(std::string_view field)> name;
  /// Throws; the text says what was found and what was expected.
  std::function<void(const std::string& problem)> refuse;
};

/// Refuses the first field that is wrong.
void check_config(const TransformerConfig& config, const ConfigWords& words);
void check_config(const LanguageModelConfig& config, const ConfigWords& words);

}  // namespace alibi
