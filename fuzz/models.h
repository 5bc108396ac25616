// Models of one layer that are less than two kilobytes on disk.
#pragma once

#include <memory>
#include <vector>

#include "alibi/language_model.h"

namespace alibi::fuzz {

/// One of each kind that config.json can describe: position methods, gated layers, biases, norms, grouped heads,
/// adaptive vocabularies.
std::vector<LanguageModelConfig> small_configs();
/// Of eight words.
LanguageModel small_model(const LanguageModelConfig& config);

}  // namespace alibi::fuzz
