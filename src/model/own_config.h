// config.json of our own folders. Some fields are at the top of the file, the others under "alibi". If the programs of
// a family can run the model, model/families/ adds the keys that they read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/model_options.h"
#include "formats/json.h"

namespace alibi::model {

inline constexpr const char* kConfigFile = "config.json";
/// Its model_type.
inline constexpr const char* kOwnType = "alibi";
/// Real files have a thousandth of this size.
inline constexpr size_t kMostConfigBytes = size_t{1} << 20;

struct OwnConfig {
  LanguageModelConfig model;
  /// The fingerprint is that of the tokenizer used in training. Both are empty if unknown.
  std::string tokenizer_kind, tokenizer_fingerprint;
};

/// The fields that must be written under "alibi", because their values differ from those of a file without them.
std::vector<const ConfigField*> unusual_fields(const LanguageModelConfig& config);

/// Whether this library wrote the config.json, which then contains our own keys.
bool is_own_config(const formats::JsonObject& config);
/// Throws Error that names the file and the key, and shows what was found and expected.
OwnConfig read_own_config(const std::filesystem::path& folder);
/// Content of the file for this model. `tokenizer` may be null.
formats::OrderedJson own_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);

}  // namespace alibi::model
