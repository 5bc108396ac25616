// Declares fields of a model's configuration: in config_fields.cc, and in the files of position methods.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/config_fields.h"

namespace alibi::model {

/// Type of the field that `access` returns.
template <auto access>
using FieldType = std::remove_reference_t<decltype(access(std::declval<LanguageModelConfig&>()))>;

template <auto access>
OptionValue get_field(const LanguageModelConfig& config) {
  using Value = FieldType<access>;
  const Value& value = access(config);
  if constexpr (std::is_same_v<Value, Position>) {
    return name_of(value);
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(enum_name(value));
  } else if constexpr (std::is_same_v<Value, std::vector<float>>) {
    return std::vector<double>(value.begin(), value.end());
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<Value>) {
    return int64_t{value};
  } else {
    return double{value};
  }
}

template <auto access>
void set_field(LanguageModelConfig& config, const OptionValue& given) {
  using Value = FieldType<access>;
  Value& value = access(config);
  if constexpr (std::is_same_v<Value, Position>) {
    value = position_from(std::get<std::string>(given));
  } else if constexpr (std::is_enum_v<Value>) {
    value = enum_value<Value>(std::get<std::string>(given)).value();
  } else if constexpr (std::is_same_v<Value, std::vector<float>>) {
    const auto& numbers = std::get<std::vector<double>>(given);
    value.assign(numbers.begin(), numbers.end());
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = std::get<bool>(given);
  } else if constexpr (std::is_integral_v<Value>) {
    value = static_cast<Value>(std::get<int64_t>(given));
  } else {
    value = static_cast<Value>(std::get<double>(given));
  }
}

template <class Value>
constexpr std::span<const char* const> choices_of() {
  if constexpr (std::is_enum_v<Value>) return formats::option_access::names<Value>;
  return {};
}

/// A number of the configuration that only one position method has and that is no member of AttentionConfig.
struct PositionNumber {
  const char *name, *json;  ///< "kerple_rate_factor", "alibi.kerple_rate_factor"
  double usual;

  double of(const TransformerConfig& config) const {
    const auto found = config.attention.position_numbers.find(name);
    return found == config.attention.position_numbers.end() ? usual : found->second;
  }
  void set(TransformerConfig& config, double value) const {
    config.attention.position_numbers.erase(name);
    if (value != usual) config.attention.position_numbers[name] = value;
  }
};

/// The field of a PositionNumber, which users may set. `number` has static storage.
template <const PositionNumber& number>
ConfigField number_field(const formats::OptionRange& range, const char* help, const char* default_text = nullptr) {
  return {{.name = number.name,
           .get = [](const LanguageModelConfig& config) -> OptionValue { return number.of(config.transformer); },
           .set = [](LanguageModelConfig& config,
                     const OptionValue& value) { number.set(config.transformer, std::get<double>(value)); },
           .choices = {},
           .range = range,
           .help = help,
           .default_text = default_text,
           .rare = true},
          {.json = number.json, .always_written = true, .offered = true}};
}

}  // namespace alibi::model

/// The start of a declaration: the location of the field's value in a LanguageModelConfig, and with it the field's name
/// and the names of the values that it can have.
// clang-format off
#define ALIBI_PLACE(place)                                                                     \
  .get = ::alibi::model::get_field<[](auto& config) -> auto& { return config.place; }>,        \
  .set = ::alibi::model::set_field<[](auto& config) -> auto& { return config.place; }>
#define ALIBI_FIELD(called, place)                                                             \
  .name = (called), ALIBI_PLACE(place),                                                        \
  .choices = ::alibi::model::choices_of<                                                       \
      ::alibi::model::FieldType<[](auto& config) -> auto& { return config.place; }>>()
// clang-format on
