#include "train/option_list.h"

#include <algorithm>
#include <string>

#include "train/described.h"

namespace alibi {
namespace {

/// The name in `names` that is the option's, or its former one; null: neither.
template <class Options>
const std::string* name_among(const formats::Option<Options>& option, std::span<const std::string> names,
                              const char* operation) {
  const std::string* found = nullptr;
  for (const std::string& name : names) {
    if (!option.is_called(name)) continue;
    check_usage(!found, "[{}] {} is the former name of {}; give one of them", operation,
                option.older_name ? option.older_name : "", option.name);
    found = &name;
  }
  return found;
}

bool is_known(std::string_view name) {
  const auto is_it = [name](const auto& option) { return option.is_called(name); };
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
  const OptionValue automatic = std::string("auto");
  for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
    const std::string* name = name_among(option, names, operation);
    const bool is_replaced =
        option.instead_of && std::find(names.begin(), names.end(), option.instead_of) != names.end();
    if (is_replaced) option.set(options, training::default_of(option));
    const OptionValue given = name ? value(*name, training::default_of(option)) : automatic;
    if (option.automatic && given == automatic) {
      option.set(options, std::string(option.automatic()));
    } else if (name) {
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
    const std::string* name = name_among(field, names, operation);
    if (name) model.set(field.name, value(*name, training::default_of(field)));
  }
}

}  // namespace alibi
