// Enumerators by their user-visible names.
#pragma once

#include "alibi/enum_names.h"
#include "core/check.h"

namespace alibi::core {

/// Throws UsageError with the list of valid names.
template <class Enum>
Enum value_called(std::string_view wanted, const char* what) {
  const std::optional<Enum> value = enum_value<Enum>(wanted);
  check_usage(value.has_value(), "[config] there is no {} called '{}'; choose from {}", what, wanted,
              enum_list<Enum>());
  return *value;
}

}  // namespace alibi::core
