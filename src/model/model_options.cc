#include "alibi/model_options.h"

#include "core/check.h"
#include "model/config_fields.h"

namespace alibi {
namespace {

const model::ConfigField& field_called(std::string_view name) {
  for (const model::ConfigField& field : formats::options_of<LanguageModelConfig>) {
    if (name == field.name) return field;
  }
  fail_usage("[config] there is no option of a model called '{}'", name);
}

}  // namespace

ModelOptions& ModelOptions::set(std::string_view name, const OptionValue& value) {
  const model::ConfigField& field = field_called(name);
  values_[field.name] = field.checked(value);
  return *this;
}

void ModelOptions::unset(std::string_view name) { values_.erase(std::string(name)); }

const OptionValue* ModelOptions::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void ModelOptions::apply_to(LanguageModelConfig& config) const {
  for (const auto& [name, value] : values_) field_called(name).set(config, value);
}

std::vector<std::pair<std::string, OptionValue>> config_values(const LanguageModelConfig& config) {
  std::vector<std::pair<std::string, OptionValue>> values;
  for (const model::ConfigField& field : model::config_fields()) {
    if (field.belongs_to(config.transformer.position)) values.emplace_back(field.name, field.get(config));
  }
  return values;
}

}  // namespace alibi
