// Options of a struct, each described once. A program that offers them under their names, checks, reads or writes them
// goes through the list and need not know any of them:
//
//   for (const Option<TrainOptions>& option : options_of<TrainOptions>) { ... option.get(options) ... option.help ... }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "alibi/enum_names.h"
#include "alibi/error.h"
#include "alibi/export.h"

namespace alibi {

/// What an option holds, which is the type of the member; of an enumeration the name.
using OptionValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<double>>;

/// The numbers that an option takes, of a list each of them: all that lie within what is said of them. Infinity is
/// none.
struct OptionRange {
  std::optional<double> least = {}, above = {}, most = {}, below = {};
  constexpr bool contains(double x) const {
    return x - x == 0 && (!least || x >= *least) && (!above || x > *above) && (!most || x <= *most) &&
           (!below || x < *below);
  }
};

template <class Options>
struct Option {
  /// Of the member. It is the key in checkpoints; on the command line and in train.json dashes stand for '_'.
  const char* name;
  OptionValue (*get)(const Options&);
  /// The value is of the kind that get() gives. Throws UsageError if an enumeration has no such name.
  void (*set)(Options&, const OptionValue&);
  std::span<const char* const> choices;  ///< of an enumeration
  const char* group = nullptr;  ///< title that it and those behind it stand under, where it is another than before
  OptionRange range = {};
  const char* help = "";
  const char* default_text = nullptr;  ///< what the default means, where it is none of the values that can be given
  bool changes_result = true;          ///< false: how it is computed; a run that goes on may be given another value
  /// The option that says the same in another way. This one's default means that it is not used; any other value, that
  /// the other one is not.
  const char* instead_of = nullptr;
  const char* older_name = nullptr;      ///< that the command line and train.json take too
  const char* (*automatic)() = nullptr;  ///< the command line's "auto", its default: the choice for this machine
};

/// All options of a struct, in the order that help has. They stand beside the struct.
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
    static_assert(!enum_names<Value<member>>.empty(), "enum_names<> has to stand above");
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

/// The first fields of an Option: what follows from the member.
#define ALIBI_OPTION(Struct, member) ALIBI_OPTION_CALLED(#member, Struct, member)
#define ALIBI_OPTION_CALLED(called, Struct, member)                      \
  .name = (called), .get = ::alibi::option_access::get<&Struct::member>, \
  .set = ::alibi::option_access::set<&Struct::member>, .choices = ::alibi::option_access::choices<&Struct::member>()

}  // namespace alibi
