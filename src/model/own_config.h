// config.json of our own folders. Fields that other programs have too stand at its top, the others under "alibi".
// Families (model/families) add keys for their programs to models that these can run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/json.h"
#include "model/config_fields.h"

namespace alibi::model {

inline constexpr const char* kConfigFile = "config.json";

/// Throws Error unless the folder has this file. If it has an unfinished training, the message names the checkpoint.
void check_model_folder(const std::filesystem::path& folder);
/// Its model_type.
inline constexpr const char* kOwnType = "alibi";
/// Real ones have a thousandth of it.
inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

struct OwnConfig {
  LanguageModelConfig model;
  std::string tokenizer_kind, tokenizer_fingerprint;  ///< fingerprint of the tokenizer of the training; empty: not
                                                      ///< known
};

/// The fields under "alibi" whose values are not those that are meant without them.
std::vector<const ConfigField*> unusual_fields(const LanguageModelConfig& config);

/// Whether this library wrote the config.json, which then contains our own keys.
bool is_own_config(const formats::JsonObject& config);
/// Throws Error that names the file and the key, and shows what was found and expected.
OwnConfig read_own_config(const std::filesystem::path& folder);
/// The keys of the tokens that begin and end a text.
void set_special_tokens(const Tokenizer& tokenizer, formats::OrderedJson& json);
/// Content of the file for this model. `tokenizer` may be null.
formats::OrderedJson own_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);

}  // namespace alibi::model
