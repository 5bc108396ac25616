// config.json as the MPT of Hugging Face's transformers has it, and ours.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/json.h"

namespace alibi::model {

inline constexpr const char* kConfigFile = "config.json";

struct MptConfig {
  LanguageModelConfig model;
  std::string tokenizer_kind, tokenizer_fingerprint;  ///< of the tokenizer it was trained with; empty: not known
  std::vector<std::string> differences;  ///< why other programs do not run this folder as an MPT; empty: they do
};

/// What the MPT of Hugging Face's transformers would refuse in such a model, or do differently without a word.
std::vector<std::string> differences_from_mpt(const LanguageModelConfig& config);

/// Throws Error naming the file, the key, what was found and what was expected.
MptConfig read_mpt_config(const std::filesystem::path& folder);
/// What the file of such a model says. `tokenizer` may be null.
formats::OrderedJson mpt_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);

}  // namespace alibi::model
