// Our own folders for programs that know a family: a model that the family can express has its keys in config.json too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/json.h"
#include "model/families/family.h"

namespace alibi::model {

/// The family as which our own models are written for other programs.
const Family& family_of_own();
/// Throws Error unless the model_type is ours or that family's.
void check_own_type(const formats::JsonObject& file);

/// Content of config.json in our own folders. `tokenizer` may be null.
formats::OrderedJson own_folder_json(const LanguageModelConfig& config, const Tokenizer* tokenizer);
/// Writes one of our own folders, whatever the model comes from.
void save_own(const LanguageModel& model, const std::filesystem::path& folder);

}  // namespace alibi::model
