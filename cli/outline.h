// The commands and their options as plain data, from which shell completion is generated.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace alibi::cli {

struct OptionOutline {
  std::vector<std::string> names;  ///< "-o", "--out"; for an argument "TEXT"
  std::string value;               ///< name of the value in help: "N", "FILE", ...; empty for a flag
  std::string help;
  std::string group;                 ///< title of its group in the help
  std::vector<std::string> choices;  ///< valid values, if there are only a few
  bool is_list = false;              ///< whether values are separated by commas
  bool repeats = false;
  bool value_optional = false;
  bool required = false;
};

struct CommandOutline {
  std::string path;  ///< "/bench/attention"; "" for the program itself
  std::string name;
  std::string help;
  std::string footer;
  std::vector<OptionOutline> options;
  std::vector<OptionOutline> arguments;
  std::vector<CommandOutline> commands;

  /// All commands below this one. A group comes before its commands.
  std::vector<const CommandOutline*> all() const;
};

/// "-o" and "--out".
std::vector<std::string> shown_names(const CLI::Option& option);
/// If one of the arguments is no file but a value of a list option that was given, as in `--lengths 128 256`, a message
/// that says how lists are written; else "".
std::string values_after_list(const CLI::App& command, const std::vector<std::string>& words);
/// Whether only `--help all` shows the option.
bool is_rare(const CLI::Option& option);
CommandOutline outline_of(const CLI::App& app, const std::string& path = "");

}  // namespace alibi::cli
