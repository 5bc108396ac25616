#include "command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "edit_distance.h"
#include "formats/json.h"
#include "outline.h"

namespace alibi::cli {
namespace {

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

/// Replaces "5k" by "5000". Returns what is wrong, or nothing: the parser's convention.
std::string to_count(std::string& text, int64_t least, int64_t most) {
  std::string_view digits = text;
  int64_t unit = 1;
  if (digits.ends_with('k') || digits.ends_with('M')) {
    unit = digits.ends_with('k') ? 1'000 : 1'000'000;
    digits.remove_suffix(1);
  }
  int64_t value = 0;
  if (!parse(digits, value) || value < 0 || value > std::numeric_limits<int64_t>::max() / unit ||
      value * unit < least || value * unit > most) {
    const std::string range =
        most == INT64_MAX ? fmt::format("at least {}", least) : fmt::format("{} to {}", least, most);
    return fmt::format("'{}' found, a whole number expected, {} (5k and 2M are understood)", text, range);
  }
  text = std::to_string(value * unit);
  return {};
}

CLI::Validator count_check(int64_t least, int64_t most) {
  return CLI::Validator([=](std::string& text) { return to_count(text, least, most); }, "", "count");
}

std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() || value == "0" ? help : fmt::format("{} [{}]", help, value);
}

/// Of all options, by Command::choices().
std::map<const CLI::Option*, std::vector<std::string>>& all_choices() {
  static std::map<const CLI::Option*, std::vector<std::string>> choices;
  return choices;
}

/// The key by which a file of options has it: "text" for TEXT, "learning-rate" for --learning-rate.
std::string key_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  std::string name = option.get_name();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

/// As they would stand on the command line.
std::vector<std::string> words_of(const Json& value, const std::string& where) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_number() || value.is_boolean()) return {value.dump()};
  check_usage(value.is_array(), "[config] {} is an object, expected a value or a list of values", where);
  std::vector<std::string> words;
  for (const Json& element : value) {
    check_usage(element.is_string() || element.is_number(), "[config] {} holds {}, expected texts or numbers", where,
                element.dump());
    words.push_back(element.is_string() ? element.get<std::string>() : element.dump());
  }
  return words;
}

}  // namespace

Command::Command(CLI::App& app, const std::string& name, const std::string& description)
    : app_(app.add_subcommand(name, description)) {}

void Command::model(std::string& folder, bool required) {
  app_->add_option("MODEL", folder, "Model folder")->required(required)->type_name("");
}

void Command::texts(std::vector<std::string>& texts, bool required, const std::string& help) {
  app_->add_option("TEXT", texts, help)->required(required)->type_name("");
}

void Command::text(const std::string& names, std::string& value, const std::string& type, const std::string& help,
                   bool required) {
  app_->add_option(names, value, with_default(help, value))->required(required)->type_name(type);
}

void Command::repeated(const std::string& name, std::vector<std::string>& values, const std::string& type,
                       const std::string& help) {
  app_->add_option(name, values, help)->type_name(type)->allow_extra_args(false);
}

void Command::list(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  const std::string now = fmt::format("{}", fmt::join(values, ","));
  app_->add_option(name, values, with_default(help, now))->type_name("LIST")->delimiter(',')->allow_extra_args(false);
}

void Command::count(const std::string& name, int64_t& value, const std::string& help, int64_t least, int64_t most) {
  app_->add_option(name, value, with_default(help, value < least ? "" : std::to_string(value)))
      ->type_name("N")
      ->transform(count_check(least, most));
}

void Command::counts(const std::string& name, std::vector<int64_t>& values, const std::string& help) {
  app_->add_option(name, values, help)
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(count_check(1, INT64_MAX));
}

void Command::seed(uint64_t& value) {
  const auto check = [](std::string& text) {
    uint64_t parsed = 0;
    return parse(text, parsed) ? std::string() : fmt::format("'{}' found, a whole number of at least 0 expected", text);
  };
  app_->add_option("--seed", value, fmt::format("All random numbers follow from it [{}]", value))
      ->type_name("N")
      ->transform(CLI::Validator(check, "", "seed"));
}

void Command::number(const std::string& name, double& value, const std::string& help) {
  const auto check = [](std::string& text) {
    double parsed = 0;
    return parse(text, parsed) && std::isfinite(parsed) && parsed >= 0
               ? std::string()
               : fmt::format("'{}' found, a number of at least 0 expected", text);
  };
  app_->add_option(name, value, with_default(help, value > 0 ? fmt::format("{:g}", value) : ""))
      ->type_name("X")
      ->transform(CLI::Validator(check, "", "number"));
}

void Command::flag(const std::string& name, bool& value, const std::string& help) { app_->add_flag(name, value, help); }

void Command::optional_text(const std::string& name, std::string& value, const std::string& type,
                            const std::string& help) {
  app_->add_option(name, value, help)->type_name("[" + type + "]")->expected(0, 1);
}

bool Command::given(const std::string& name) const { return app_->count(name) > 0; }

void Command::read_options(const std::string& json_file, const std::vector<std::string>& refused) const {
  const JsonObject file = read_json_object(json_file);
  std::map<std::string, CLI::Option*> known;
  for (CLI::Option* option : app_->get_options()) {
    const std::string key = key_of(*option);
    if (std::find(refused.begin(), refused.end(), key) == refused.end()) known[key] = option;
  }
  std::vector<std::string> names;
  for (const auto& entry : known) names.push_back(entry.first);
  // All keys are looked at before a value is set, so that "given" means the command line.
  std::vector<std::pair<CLI::Option*, std::string>> settings;
  for (const std::string& key : file.keys()) {
    const auto found = known.find(key);
    check_usage(found != known.end(), "[config] {}: there is no option '{}'; did you mean '{}'?", json_file, key,
                nearest(key, names));
    CLI::Option* option = found->second;
    const auto is_given = [](const CLI::Option* other) { return other->count() > 0; };
    const auto& excluded = option->get_excludes();
    if (!file.has(key) || is_given(option) || std::any_of(excluded.begin(), excluded.end(), is_given)) continue;
    for (const CLI::Option* other : excluded) {
      check_usage(!file.has(key_of(*other)), "[config] {}: '{}' and '{}' exclude each other", json_file, key,
                  key_of(*other));
    }
    settings.emplace_back(option, key);
  }
  for (const auto& [option, key] : settings) {
    const std::vector<std::string> words = words_of(file.raw().at(key), fmt::format("{}: '{}'", json_file, key));
    if (words.empty() || (option->get_expected_max() == 0 && words.front() == "false")) continue;
    try {
      option->add_result(words);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      fail_usage("[config] {}: '{}': {}", json_file, key, error.what());
    }
  }
}

void Command::exclude(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void Command::choices(const std::string& name, std::vector<std::string> values) {
  all_choices()[app_->get_option(name)] = std::move(values);
}

void Command::group(const std::string& title) { app_->option_defaults()->group(title); }

void Command::examples(const std::string& lines) { app_->footer("Examples:\n" + lines); }

void Command::runs(std::function<void()> body) { app_->callback(std::move(body)); }

CLI::App& add_command_group(CLI::App& app, const std::string& name, const std::string& description) {
  return *app.add_subcommand(name, description)->require_subcommand(1);
}

namespace {

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline outline;
  for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
  if (option.get_positional()) outline.names = {option.get_name()};
  if (option.get_expected_max() > 0) outline.value = option.get_type_name();
  if (option.get_positional() && outline.value.empty()) outline.value = option.get_name();
  outline.value_optional = outline.value.starts_with('[');
  if (outline.value_optional) outline.value = outline.value.substr(1, outline.value.size() - 2);
  outline.required = option.get_required();
  outline.help = option.get_description();
  outline.group = option.get_group();
  outline.is_list = option.get_delimiter() != '\0';
  outline.repeats = option.get_expected_max() > 1 && !outline.is_list;
  const auto choices = all_choices().find(&option);
  if (choices != all_choices().end()) outline.choices = choices->second;
  return outline;
}

}  // namespace

CommandOutline outline_of(const CLI::App& app, const std::string& path) {
  CommandOutline outline;
  outline.path = path;
  outline.name = app.get_name();
  outline.help = app.get_description();
  outline.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? outline.arguments : outline.options).push_back(outline_of(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    outline.commands.push_back(outline_of(*command, path + "/" + command->get_name()));
  }
  return outline;
}

std::vector<const CommandOutline*> CommandOutline::all() const {
  std::vector<const CommandOutline*> below;
  for (const CommandOutline& command : commands) {
    below.push_back(&command);
    for (const CommandOutline* deeper : command.all()) below.push_back(deeper);
  }
  return below;
}

}  // namespace alibi::cli
