#include "model/families/own_as_family.h"

#include <algorithm>

#include "core/atomic_update.h"
#include "core/check.h"
#include "model/original_format.h"
#include "model/own_config.h"
#include "model/own_folder.h"

namespace alibi::model {
namespace {

/// Adds keys, also to objects that are there.
void add_keys(const formats::OrderedJson& from, formats::OrderedJson& to) {
  for (const auto& [key, value] : from.items()) {
    if (value.is_object() && to.contains(key)) {
      add_keys(value, to[key]);
    } else {
      to[key] = value;
    }
  }
}

}  // namespace

const Family& family_of_own() {
  const auto found =
      std::find_if(families().begin(), families().end(), [](const Family* family) { return family->folder.is_own; });
  check(found != families().end(), "[model] no family has the tensors of this library's folders");
  return **found;
}

void check_own_type(const formats::JsonObject& file) {
  const std::string type = file.get<std::string>("model_type");
  check(type == kOwnType || type == family_of_own().name, "[config] {}model_type is '{}', expected {} or {}",
        file.where(), type, kOwnType, family_of_own().name);
}

formats::OrderedJson own_folder_json(const LanguageModelConfig& config, const Tokenizer* tokenizer) {
  formats::OrderedJson json = own_config_json(config, tokenizer);
  const Layout& layout = family_of_own().folder;
  if (!layout.differences(config).empty()) return json;
  formats::OrderedJson keys;
  layout.describe(config, keys);
  add_keys(keys, json);
  return json;
}

void save_own(const LanguageModel& model, const std::filesystem::path& folder) {
  const Tokenizer* tokenizer = model.has_tokenizer() ? &model.tokenizer() : nullptr;
  core::update_atomically(folder, own_file_names(), [&](const std::filesystem::path& part) {
    write_own_files(part, own_folder_json(model.config(), tokenizer), model.config(), model.parameters(), tokenizer);
  });
}

}  // namespace alibi::model

namespace alibi {

void LanguageModel::save(const std::filesystem::path& folder) const {
  if (origin() != nullptr) return origin()->save(*this, folder);
  model::save_own(*this, folder);
}

}  // namespace alibi
