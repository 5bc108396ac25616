// Descriptions of the options of a struct, one per member. The command line, checks and files iterate over this list
// and do not name single options:
//
//   for (const Option<TrainOptions>& option : options_of<TrainOptions>) { ... option.get(options) ... option.help ... }
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "alibi/enum_names.h"
#include "alibi/error.h"
#include "alibi/export.h"
#include "alibi/option_value.h"

namespace alibi::formats {

/// Range of a number, or of each number of a list. Infinity and NaN are outside every range.
struct OptionRange {
  std::optional<double> least = {}, above = {}, most = {}, below = {};
  constexpr bool contains(double x) const {
    return x - x == 0 && (!least || x >= *least) && (!above || x > *above) && (!most || x <= *most) &&
           (!below || x < *below);
  }
};

/// Option::default_text of a value that the presets determine.
inline constexpr const char* kPresetDefault = "the preset's";

template <class Options>
struct Option {
  /// Name of the member, and key in checkpoints. On the command line and in train.json, dashes replace '_'.
  const char* name;
  OptionValue (*get)(const Options&);
  /// Takes a value of the type that get() returns. Throws UsageError if an enumeration has no such name.
  void (*set)(Options&, const OptionValue&);
  std::span<const char* const> choices;  ///< names of an enumeration
  const char* group = nullptr;           ///< heading in the help from this option on; null: the heading before
  OptionRange range = {};
  const char* help = "";
  const char* default_text = nullptr;  ///< text for a default that is not a value, or kPresetDefault
  bool changes_result = true;          ///< false: the results have the same bits, so a resumed run may have another
                                       ///< value
  /// Name of the option that this one overrides when it is set. The default means that it is not set.
  const char* instead_of = nullptr;
  const char* (*automatic)() = nullptr;  ///< the value of "auto" on this machine, which is the command line's default
  bool rare = false;                     ///< `--help` leaves the option out, `--help all` shows it
};

/// All options of a struct, in the order of the help: specialized in train/option_list.h and model/config_fields.h.
template <class Options>
inline constexpr std::array<Option<Options>, 0> options_of{};

namespace option_access {

template <class Member>
struct Parts;
template <class Struct, class Value>
struct Parts<Value Struct::*> {
  using Of = Struct;
  using Type = Value;
};
template <auto member>
using Struct = typename Parts<decltype(member)>::Of;
template <auto member>
using Value = typename Parts<decltype(member)>::Type;

template <class Enum>
ALIBI_HIDDEN inline constexpr auto names = [] {
  std::array<const char*, enum_names<Enum>.size()> result{};
  for (size_t i = 0; i < result.size(); ++i) result[i] = enum_names<Enum>[i].name;
  return result;
}();

template <auto member>
OptionValue get(const Struct<member>& options) {
  if constexpr (std::is_enum_v<Value<member>>) {
    static_assert(!enum_names<Value<member>>.empty(), "specialize enum_names<> before this use");
    return std::string(enum_name(options.*member));
  } else {
    return options.*member;
  }
}

template <auto member>
void set(Struct<member>& options, const OptionValue& value) {
  if constexpr (std::is_enum_v<Value<member>>) {
    const auto& name = std::get<std::string>(value);
    const std::optional<Value<member>> found = enum_value<Value<member>>(name);
    if (!found) throw UsageError("[options] '" + name + "' found; choose from " + enum_list<Value<member>>());
    options.*member = *found;
  } else {
    options.*member = std::get<Value<member>>(value);
  }
}

template <auto member>
constexpr std::span<const char* const> choices() {
  if constexpr (std::is_enum_v<Value<member>>) return names<Value<member>>;
  return {};
}

}  // namespace option_access

/// The first fields of an Option, which follow from the member.
#define ALIBI_OPTION(Struct, member) ALIBI_OPTION_CALLED(#member, Struct, member)
#define ALIBI_OPTION_CALLED(called, Struct, member)                               \
  .name = (called), .get = ::alibi::formats::option_access::get<&Struct::member>, \
  .set = ::alibi::formats::option_access::set<&Struct::member>,                   \
  .choices = ::alibi::formats::option_access::choices<&Struct::member>()

}  // namespace alibi::formats
