// config.json of our own folders: the keys of MPT as far as they go, so that transformers reads what is an MPT, and our
// own keys under "alibi".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/json.h"

namespace alibi::model {

inline constexpr const char* kConfigFile = "config.json";
/// Real ones have a thousandth of it.
inline constexpr size_t kMostConfigBytes = size_t{1} << 20;

struct OwnConfig {
  LanguageModelConfig model;
  std::string tokenizer_kind, tokenizer_fingerprint;  ///< fingerprint of the tokenizer of the training; empty: not
                                                      ///< known
  std::vector<std::string> differences;  ///< why other programs refuse this folder; empty: they run it as an MPT
};

/// What MPT in Hugging Face's transformers would refuse in such a model, or compute differently.
std::vector<std::string> differences_from_mpt(const LanguageModelConfig& config);

/// Whether a config.json was written by this library: it has our own keys.
bool is_own_config(const formats::JsonObject& config);
/// Throws Error naming the file, the key, what was found and what was expected.
OwnConfig read_own_config(const std::filesystem::path& folder);
/// Content of the file for this model. `tokenizer` may be null.
formats::OrderedJson own_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);

}  // namespace alibi::model
