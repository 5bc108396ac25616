// A subcommand and its options. What every command asks for is checked and explained the same way, and the parser's
// large header is read in two files only.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/option.h"

namespace CLI {
class App;
}

namespace alibi::cli {

/// Values keep what they hold unless the option is given; help shows it in brackets, if it is not 0 or empty.
/// `names` is "--long", "-s,--long" or "--long,--former": names after the first long one are former names, which are
/// accepted until the next release and not shown in help, completion or the manual page. A value that does not fit ends
/// the program with exit code 2.
class Command {
 public:
  Command(CLI::App& app, const std::string& name, const std::string& description);

  /// The model folder, an argument.
  void model(std::string& folder, bool required = true);
  /// Arguments: files, folders or "-". Help calls them `name`.
  void texts(std::vector<std::string>& texts, bool required, const std::string& help, const std::string& name = "TEXT");
  void text(const std::string& names, std::string& value, const std::string& type, const std::string& help,
            bool required = false);
  /// Any value: `take` gets its word, keeps it, and says what is wrong, or nothing. Help is shown as it is.
  void value(const std::string& names, const std::string& type, const std::string& help,
             std::function<std::string(const std::string&)> take);
  /// One value each time the option is given.
  void repeated(const std::string& name, std::vector<std::string>& values, const std::string& type,
                const std::string& help);
  /// Separated by commas.
  void list(const std::string& name, std::vector<std::string>& values, const std::string& help);
  /// A whole number; 5k and 2M are understood.
  void count(const std::string& name, int64_t& value, const std::string& help, int64_t least = 1,
             int64_t most = INT64_MAX);
  /// One that is absent unless the option is given.
  void count(const std::string& name, std::optional<int64_t>& value, const std::string& help, int64_t least = 1,
             int64_t most = INT64_MAX);
  /// Whole numbers of at least 1, separated by commas.
  void counts(const std::string& name, std::vector<int64_t>& values, const std::string& help);
  void seed(uint64_t& value);
  /// Finite and at least 0.
  void number(const std::string& name, double& value, const std::string& help);
  /// One that is absent unless the option is given.
  void number(const std::string& name, std::optional<double>& value, const std::string& help,
              const formats::OptionRange& range);
  void flag(const std::string& name, bool& value, const std::string& help);
  void flag(const std::string& names, const std::string& help, std::function<void()> take);
  /// A text that may be left out behind the name; given() says whether the option is there.
  void optional_text(const std::string& name, std::string& value, const std::string& type, const std::string& help);
  void exclude(const std::string& name, const std::string& other);
  /// The values that the option takes, for completion (outline.h); what else is refused is not this one's business.
  void choices(const std::string& name, std::vector<std::string> values);

  /// Accepts the option, but leaves it out of help, completion and the manual page.
  void hide(const std::string& name);
  /// Options from here on stand under this title in the help.
  void group(const std::string& title);
  void examples(const std::string& lines);
  /// Gives the options that stand in a JSON object, and not on the command line, their values; keys are the options'
  /// names without dashes ("text" for TEXT). Throws UsageError for a key that is no option, or one of `refused`.
  /// For the body that runs() was given.
  void read_options(const std::string& json_file, const std::vector<std::string>& refused) const;
  /// What the command line has, or read_options() gave, as such an object; without `left_out`.
  nlohmann::ordered_json given_options(const std::vector<std::string>& left_out) const;
  /// Whether the command line has the option.
  bool given(const std::string& name) const;

  /// What is done once the whole command line has been read.
  void runs(std::function<void()> body);

 private:
  CLI::App* app_;
};

/// A command that only holds others, to be added to what this returns.
CLI::App& add_command_group(CLI::App& app, const std::string& name, const std::string& description);

}  // namespace alibi::cli
