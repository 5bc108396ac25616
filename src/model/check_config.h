// Checks a configuration. Messages name the fields as the source of the configuration does.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "alibi/language_model.h"

namespace alibi::model {

inline constexpr int largest_extent = 1 << 20;  // prevents overflow of the product of two extents

/// Names of the fields at the source of a configuration, for messages.
struct ConfigFields {
  /// "heads" -> "n_heads". The fields of AdaptiveConfig are "adaptive.cutoffs" and so on.
  std::function<std::string(std::string_view field)> name;
  /// Throws Error with what was found and what was expected.
  std::function<void(const std::string& problem)> refuse;

  template <class Value>
  void expect(bool ok, std::string_view field, const Value& value, std::string_view expected) const {
    refuse_if(!ok, fmt::format("{} is {}, expected {}", name(field), value, expected));
  }
  void refuse_if(bool wrong, const std::string& problem) const {
    if (wrong) refuse(problem);
  }
  void range(std::string_view field, int64_t value, int64_t low, int64_t high) const {
    expect(value >= low && value <= high, field, value, fmt::format("{} to {}", low, high));
  }
};

/// Throws for the first invalid field.
void check_config(const LanguageModelConfig& config, const ConfigFields& fields);

}  // namespace alibi::model
