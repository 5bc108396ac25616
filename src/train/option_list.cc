#include "train/option_list.h"

#include <algorithm>
#include <string>

#include "train/described.h"

namespace alibi {
namespace {

bool is_known(std::string_view name) {
  const auto is_it = [name](const auto& option) { return name == option.name; };
  const auto& train = formats::options_of<TrainOptions>;
  const auto& model = formats::options_of<LanguageModelConfig>;
  return std::any_of(train.begin(), train.end(), is_it) || std::any_of(model.begin(), model.end(), is_it);
}

std::string known_names() {
  std::string names;
  for (const auto& option : formats::options_of<TrainOptions>) names += std::string(option.name) + ", ";
  for (const auto& field : formats::options_of<LanguageModelConfig>) names += std::string(field.name) + ", ";
  return names.substr(0, names.size() - 2);
}

}  // namespace

void set_options(TrainOptions& options, ModelOptions& model, std::span<const std::string> names,
                 const std::function<OptionValue(const std::string& name, const OptionValue& like)>& value,
                 const char* operation) {
  for (const std::string& name : names) {
    check_usage(is_known(name), "[{}] there is no option '{}'; choose from {}", operation, name, known_names());
  }
  const auto is_given = [names](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const OptionValue automatic = std::string("auto");
  for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
    if (option.instead_of && is_given(option.instead_of)) option.set(options, training::default_of(option));
    const OptionValue given = is_given(option.name) ? value(option.name, training::default_of(option)) : automatic;
    if (option.automatic && given == automatic) {
      option.set(options, std::string(option.automatic()));
    } else if (is_given(option.name)) {
      check_usage(formats::is_in(option.range, given), "[{}] {} is {}, expected {}", operation, option.name,
                  formats::text_of(given), formats::text_of(option.range));
      const auto* const word = std::get_if<std::string>(&given);
      check_usage(option.choices.empty() || !word ||
                      std::find(option.choices.begin(), option.choices.end(), *word) != option.choices.end(),
                  "[{}] {} is '{}', expected one of {}", operation, option.name, formats::text_of(given),
                  fmt::join(option.choices, ", "));
      option.set(options, given);
    }
  }
  for (const model::ConfigField& field : formats::options_of<LanguageModelConfig>) {
    if (is_given(field.name)) model.set(field.name, value(field.name, training::default_of(field)));
  }
}

}  // namespace alibi
