// Turns the described options of a library struct (train/option_list.h) into command-line options.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "command.h"
#include "train/described.h"

namespace alibi::cli {

/// "Help: cosine, linear or constant [default]"
std::string help_text(const std::vector<std::string>& choices, const char* help, const std::string& default_text);
/// Parses a word of the command line into `value`, whose type determines the format. Returns what is wrong, or "".
std::string read_value(const std::string& word, const formats::OptionRange& range,
                       const std::vector<std::string>& choices, OptionValue& value);

/// The valid words of an option, if there are only a few.
template <class Options>
std::vector<std::string> choices_of(const formats::Option<Options>& option) {
  std::vector<std::string> choices(option.choices.begin(), option.choices.end());
  if (option.automatic) choices.emplace_back("auto");
  if (training::default_of(option) == OptionValue(true)) choices = {"true", "false"};
  return choices;
}

template <class Options>
std::string help_of(const formats::Option<Options>& option) {
  return help_text(choices_of(option), option.help, training::default_text(option));
}

/// Stores the options that were given.
template <class Options>
class GivenOptions {
 public:
  /// Adds the options of this group to the command. This object must not be moved afterwards.
  void add_to(Command& command, std::string_view group);
  /// Applies the given options to `options`, and machine-dependent defaults to the others.
  void apply_to(Options& options) const;
  bool empty() const { return values_.empty(); }
  bool has(std::string_view name) const { return values_.contains(name); }
  /// Whether the option has no value other than "auto".
  bool is_automatic(std::string_view name) const {
    const auto given = values_.find(name);
    return given == values_.end() || given->second == OptionValue(std::string("auto"));
  }
  const std::map<std::string_view, OptionValue>& values() const { return values_; }

 private:
  void add(Command& command, const formats::Option<Options>& option);

  std::map<std::string_view, OptionValue> values_;
};

template <class Options>
void GivenOptions<Options>::add_to(Command& command, std::string_view group) {
  std::string_view title;
  for (const formats::Option<Options>& option : formats::options_of<Options>) {
    if (option.group) title = option.group;
    if (title == group) add(command, option);
  }
}

template <class Options>
void GivenOptions<Options>::add(Command& command, const formats::Option<Options>& option) {
  const std::vector<std::string> choices = choices_of(option);
  const OptionValue kind = training::default_of(option);
  const std::string name = "--" + training::option_key(option.name);
  const char* type = std::holds_alternative<std::vector<double>>(kind) ? "X,..."
                     : std::holds_alternative<double>(kind)            ? "X"
                     : choices.empty()                                 ? "N"
                                                                       : "NAME";
  if (const bool* is_on = std::get_if<bool>(&kind)) {
    const std::string flag = training::option_word(option);
    command.flag(*is_on ? flag : name, training::flag_help(option),
                 [this, &option, value = !*is_on] { values_[option.name] = value; });
    if (option.rare) command.rare(*is_on ? flag : name);
    if (!*is_on) return;
  }
  command.value(name, type, help_of(option), [this, &option, choices, kind](const std::string& word) {
    OptionValue value = kind;
    const std::string wrong = read_value(word, option.range, choices, value);
    if (wrong.empty()) values_.try_emplace(option.name, value);  // --no-NAME of the command line takes precedence
    return wrong;
  });
  if (std::holds_alternative<bool>(kind)) command.hide(name);  // needed for `causal: false` in train.json
  if (!choices.empty()) command.choices(name, choices);
  if (option.rare) command.rare(name);
  if (option.instead_of) command.exclude(name, "--" + training::option_key(option.instead_of));
}

template <class Options>
void GivenOptions<Options>::apply_to(Options& options) const {
  for (const formats::Option<Options>& option : formats::options_of<Options>) {
    const bool is_other_way_given = option.instead_of && has(option.instead_of);
    if (is_other_way_given) option.set(options, training::default_of(option));
    const auto given = values_.find(option.name);
    if (option.automatic && is_automatic(option.name)) {
      option.set(options, std::string(option.automatic()));
    } else if (given != values_.end()) {
      option.set(options, given->second);
    }
  }
}

}  // namespace alibi::cli
