// config.json of our own folders. It uses MPT's keys as far as possible, so that transformers can read models that are
// MPTs, and our own keys under "alibi".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/json.h"

namespace alibi::model {

inline constexpr const char* kConfigFile = "config.json";
/// Real files have a thousandth of this size.
inline constexpr size_t kMostConfigBytes = size_t{1} << 20;

struct OwnConfig {
  LanguageModelConfig model;
  std::string tokenizer_kind, tokenizer_fingerprint;  ///< fingerprint of the tokenizer used in training; empty if
                                                      ///< unknown known
  std::vector<std::string>
      differences;  ///< why other programs must refuse this folder; empty if they can run it as an MPT
};

/// Properties of the model that MPT in Hugging Face's transformers would refuse or compute differently.
std::vector<std::string> differences_from_mpt(const LanguageModelConfig& config);

/// Whether this library wrote the config.json, which then contains our own keys.
bool is_own_config(const formats::JsonObject& config);
/// Throws Error that names the file and the key, and shows what was found and expected.
OwnConfig read_own_config(const std::filesystem::path& folder);
/// Content of the file for this model. `tokenizer` may be null.
formats::OrderedJson own_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);

}  // namespace alibi::model
