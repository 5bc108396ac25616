// A subcommand and its options. All commands check and describe common options in the same way.
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
class Option;
}  // namespace CLI

namespace alibi::cli {

/// A value changes only if its option is given. Help shows the value in brackets, unless it is 0 or empty. `names` is
/// "--long" or "-s,--long". An invalid value ends the program with exit code 2.
class Command {
 public:
  Command(CLI::App& app, const std::string& name, const std::string& description);

  /// The argument MODEL: a path or a name of the hub (alibi/hub.h).
  void model(std::string& folder, bool required = true);
  /// Arguments: files, folders or "-". Help calls them `name`.
  void texts(std::vector<std::string>& texts, bool required, const std::string& help, const std::string& name = "TEXT");
  void text(const std::string& names, std::string& value, const std::string& type, const std::string& help,
            std::vector<std::string> choices = {}, bool required = false);
  /// An option of any type. `take` receives the word, stores the value and returns what is wrong with it, or "". The
  /// help text is shown unchanged.
  void value(const std::string& names, const std::string& type, const std::string& help,
             std::function<std::string(const std::string&)> take);
  /// An option that may be repeated, with one value each time.
  void repeated(const std::string& name, std::vector<std::string>& values, const std::string& type,
                const std::string& help);
  /// A list of values, separated by commas.
  void list(const std::string& name, std::vector<std::string>& values, const std::string& help,
            std::vector<std::string> choices = {});
  /// A whole number. 5k and 2M are accepted.
  void count(const std::string& name, int64_t& value, const std::string& help, int64_t least = 1,
             int64_t most = INT64_MAX);
  /// A whole number that stays empty unless the option is given.
  void count(const std::string& name, std::optional<int64_t>& value, const std::string& help, int64_t least = 1,
             int64_t most = INT64_MAX);
  /// Whole numbers of at least 1, separated by commas.
  void counts(const std::string& name, std::vector<int64_t>& values, const std::string& help);
  void seed(uint64_t& value);
  /// A finite number of at least `least`.
  void number(const std::string& name, double& value, const std::string& help, double least = 0);
  /// A number that stays empty unless the option is given.
  void number(const std::string& name, std::optional<double>& value, const std::string& help,
              const formats::OptionRange& range);
  void flag(const std::string& name, bool& value, const std::string& help);
  void flag(const std::string& names, const std::string& help, std::function<void()> take);
  /// A text that may be omitted after the option's name. given() returns whether the option is present.
  void optional_text(const std::string& name, std::string& value, const std::string& type, const std::string& help);
  /// Says that the option names a file or a folder that the command reads, so that no output may replace it (places.h).
  /// MODEL and the arguments of texts() are such options.
  void reads(const std::string& name);
  /// Says that an option names models, which may be names of the hub. They are replaced by their paths before the body
  /// of runs() is called. Such a command has the options --revision and --download.
  void names_models(const std::string& name, std::string& value);
  void names_models(const std::string& name, std::vector<std::string>& values);
  void exclude(const std::string& name, const std::string& other);
  /// The values of an option, for completion. This function does not restrict the accepted values.
  void choices(const std::string& name, std::vector<std::string> values);

  /// Shows the option in `--help all` only.
  void rare(const std::string& name);
  /// Accepts the option, but does not show it in help, completion or the manual page.
  void hide(const std::string& name);
  /// The help shows options added after this call under this title.
  void group(const std::string& title);
  void examples(const std::string& lines);
  /// Sets options from a JSON object in a file, except those given on the command line. Keys are the options' names
  /// without dashes ("text" for TEXT). Throws UsageError for an unknown key or one of `refused`. Call it in the body
  /// that was passed to runs().
  void read_options(const std::string& json_file, const std::vector<std::string>& refused) const;
  /// The options given on the command line or set by read_options() as such an object, without `left_out`.
  nlohmann::ordered_json given_options(const std::vector<std::string>& left_out) const;
  /// Whether the option is on the command line.
  bool given(const std::string& name) const;

  std::string full_name() const;
  /// Sets the function that is called after the whole command line has been parsed. Values after a list, as in
  /// `--lengths 128 256`, are refused before. Under mpirun the command is refused, because each process
  /// would do all of the work and write the same files.
  void runs(std::function<void()> body);
  /// The same for a command that divides its work over the ranks of mpirun. `body` calls join_ranks().
  void runs_over_ranks(std::function<void()> body);

 private:
  void names_models(const std::string& name, std::function<std::vector<std::string*>()> values);

  CLI::App* app_;
};

/// "alibi bench train"
std::string full_name(const CLI::App& app);
/// "-o" and "--out".
std::vector<std::string> shown_names(const CLI::Option& option);
/// Set by Command::choices().
std::vector<std::string> known_values(const CLI::Option& option);
/// Whether only `--help all` shows the option.
bool is_rare(const CLI::Option& option);
/// If one of the arguments is no file but a value of a list option that was given, as in `--lengths 128 256`, a message
/// that says how lists are written; else "".
std::string values_after_list(const CLI::App& command, const std::vector<std::string>& words);

/// Adds a command that only contains other commands. Add these to the returned app.
CLI::App& add_command_group(CLI::App& app, const std::string& name, const std::string& description);

}  // namespace alibi::cli
