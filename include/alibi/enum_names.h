// Names of enumerators, for users.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace alibi {

template <class Enum>
struct EnumName {
  Enum value;
  const char* name;
};

/// All enumerators in order; specialized beside the enumeration.
template <class Enum>
inline constexpr std::array<EnumName<Enum>, 0> enum_names{};

template <class Enum>
constexpr const char* enum_name(Enum value) {
  for (const auto& [candidate, name] : enum_names<Enum>) {
    if (candidate == value) return name;
  }
  return "?";
}

template <class Enum>
constexpr std::optional<Enum> enum_value(std::string_view wanted) {
  for (const auto& [value, name] : enum_names<Enum>) {
    if (wanted == name) return value;
  }
  return {};
}

/// "f32, bf16"
template <class Enum>
std::string enum_list() {
  std::string list;
  for (const auto& entry : enum_names<Enum>) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  return list;
}

}  // namespace alibi
