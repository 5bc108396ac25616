#include "command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "formats/hub.h"
#include "formats/json.h"
#include "numbers.h"
#include "places.h"
#include "programs.h"
#include "ranks.h"
#include "suggestion.h"

namespace alibi::cli {
namespace {

std::string with_default(const std::string& help, const std::string& value) {
  return value.empty() || value == "0" ? help : fmt::format("{} [{}]", help, value);
}

formats::OptionRange range_of(int64_t least, int64_t most) {
  formats::OptionRange range{.least = static_cast<double>(least)};
  if (most != INT64_MAX) range.most = static_cast<double>(most);
  return range;
}

/// What the parser does not know of an option.
struct OptionMore {
  std::vector<std::string> choices;  // set by Command::choices()
  bool rare = false;                 // set by Command::rare()
  /// For a list: what is wrong with one of its values, or "".
  std::function<std::string(const std::string&)> wrong_value;
  /// The models that it names; set by Command::names_models().
  std::function<std::vector<std::string*>()> models;
};
std::map<const CLI::Option*, OptionMore>& more() {
  static std::map<const CLI::Option*, OptionMore> all;
  return all;
}

/// Options that name what the command reads, set by Command::reads().
std::set<const CLI::Option*>& input_options() {
  static std::set<const CLI::Option*> options;
  return options;
}

constexpr const char* kRevision = "--revision";
constexpr const char* kDownload = "--download";

/// The path of a model. Downloads it first, if this is requested.
std::string path_of_model(const std::string& name, const std::string& revision, bool download) {
  const std::optional<formats::HubName> hub = formats::hub_name(name, revision);
  check_usage(hub || (revision.empty() && !download),
              "[{}] {} is a path; the option is for models of the Hugging Face hub, such as hf:organization/name",
              download ? kDownload : kRevision, name);
  if (!hub) return name;
  if (download) {
    run_program(formats::download_command(*hub), "download", "to install it, run: pip install huggingface_hub");
  }
  return formats::cached_model(*hub).string();
}

/// Finds the models that the option names, and tells places.h what it names.
void take_paths(const CLI::App& app, const CLI::Option& option) {
  if (option.count() == 0 || !input_options().contains(&option)) return;
  const std::string name = option.get_positional() ? option.get_name() : shown_names(option).back();
  const auto known = more().find(&option);
  if (known == more().end() || !known->second.models) {
    for (const std::string& word : option.results()) add_input(word, name);
    return;
  }
  const CLI::results_t revision = app.get_option(kRevision)->results();
  for (std::string* model : known->second.models()) {
    *model = path_of_model(*model, revision.empty() ? "" : revision.back(), app.count(kDownload) > 0);
    add_input(*model, name);
  }
}

/// The key of an option in a file of options: "text" for TEXT, "learning-rate" for --learning-rate.
std::string key_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  std::string name = option.get_name();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

/// The words as they would be on the command line.
std::vector<std::string> words_of(const formats::Json& value, const std::string& where) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_number() || value.is_boolean()) return {value.dump()};
  check_usage(value.is_array(), "[config] {} is an object, expected a value or a list of values", where);
  std::vector<std::string> words;
  for (const formats::Json& element : value) {
    check_usage(element.is_string() || element.is_number(), "[config] {} contains {}, expected text or numbers", where,
                element.dump());
    words.push_back(element.is_string() ? element.get<std::string>() : element.dump());
  }
  return words;
}

}  // namespace

Command::Command(CLI::App& app, const std::string& name, const std::string& description)
    : app_(app.add_subcommand(name, description)) {}

void Command::model(std::string& folder, bool required) {
  app_->add_option("MODEL", folder, "Model folder, GGUF file, or name on the Hugging Face hub")
      ->required(required)
      ->type_name("");
  names_models("MODEL", folder);
}

void Command::texts(std::vector<std::string>& texts, bool required, const std::string& help, const std::string& name) {
  app_->add_option(name, texts, help)->required(required)->type_name("");
  reads(name);
}

void Command::text(const std::string& names, std::string& value, const std::string& type, const std::string& help,
                   std::vector<std::string> choices, bool required) {
  CLI::Option* option = app_->add_option(names, value, with_default(help, value));
  option->required(required)->type_name(type);
  more()[option].choices = std::move(choices);
}

void Command::repeated(const std::string& name, std::vector<std::string>& values, const std::string& type,
                       const std::string& help) {
  app_->add_option(name, values, help)->type_name(type)->allow_extra_args(false);
}

void Command::list(const std::string& name, std::vector<std::string>& values, const std::string& help,
                   std::vector<std::string> choices) {
  const std::string now = fmt::format("{}", fmt::join(values, ","));
  CLI::Option* option = app_->add_option(name, values, with_default(help, now));
  option->type_name("NAME,...")->delimiter(',')->allow_extra_args(false);
  more()[option].choices = std::move(choices);
  more()[option].wrong_value = [option](const std::string& word) {
    const std::vector<std::string>& known = more()[option].choices;
    return std::find(known.begin(), known.end(), word) == known.end() ? "unknown" : "";
  };
}

void Command::value(const std::string& names, const std::string& type, const std::string& help,
                    std::function<std::string(const std::string&)> take) {
  const auto take_or_throw = [name = names.substr(0, names.find(',')),
                              take = std::move(take)](const CLI::results_t& words) {
    const std::string wrong = take(words.front());
    if (!wrong.empty()) throw CLI::ValidationError(name, wrong);
    return true;
  };
  app_->add_option(names, take_or_throw, help)->type_name(type);
}

void Command::count(const std::string& name, int64_t& value, const std::string& help, int64_t least, int64_t most) {
  this->value(
      name, "N", with_default(help, std::to_string(value)),
      [range = range_of(least, most), &value](const std::string& word) { return read_count(word, range, value); });
}

void Command::count(const std::string& name, std::optional<int64_t>& value, const std::string& help, int64_t least,
                    int64_t most) {
  this->value(name, "N", help, [range = range_of(least, most), &value](const std::string& word) {
    int64_t found = 0;
    std::string wrong = read_count(word, range, found);
    if (wrong.empty()) value = found;
    return wrong;
  });
}

void Command::counts(const std::string& name, std::vector<int64_t>& values, const std::string& help) {
  const auto check = [](std::string& word) {
    int64_t count = 0;
    const std::string wrong = read_count(word, {.least = 1}, count);
    word = std::to_string(count);
    return wrong;
  };
  CLI::Option* option = app_->add_option(name, values, help);
  option->type_name("N,...")->delimiter(',')->allow_extra_args(false)->transform(CLI::Validator(check, "", "count"));
  more()[option].wrong_value = [check](std::string word) { return check(word); };
}

void Command::seed(uint64_t& value) {
  this->value("--seed", "N", fmt::format("Seed of all random numbers [{}]", value),
              [&value](const std::string& word) { return read_seed(word, value); });
}

void Command::number(const std::string& name, double& value, const std::string& help, double least) {
  this->value(name, "X", with_default(help, value > 0 ? fmt::format("{:g}", value) : ""),
              [least, &value](const std::string& word) { return read_number(word, {.least = least}, value); });
}

void Command::number(const std::string& name, std::optional<double>& value, const std::string& help,
                     const formats::OptionRange& range) {
  this->value(name, "X", help, [range, &value](const std::string& word) {
    double found = 0;
    std::string wrong = read_number(word, range, found);
    if (wrong.empty()) value = found;
    return wrong;
  });
}

void Command::flag(const std::string& names, const std::string& help, std::function<void()> take) {
  app_->add_flag_callback(names, std::move(take), help);
}

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  flag(name, help, [&value] { value = true; });
}

void Command::optional_text(const std::string& name, std::string& value, const std::string& type,
                            const std::string& help) {
  app_->add_option(name, value, help)->type_name("[" + type + "]")->expected(0, 1);
}

bool Command::given(const std::string& name) const { return app_->count(name) > 0; }

void Command::read_options(const std::string& json_file, const std::vector<std::string>& refused) const {
  const formats::JsonObject file = formats::read_json_object(json_file);
  std::map<std::string, CLI::Option*> known;
  for (CLI::Option* option : app_->get_options()) {
    const std::string key = key_of(*option);
    if (std::find(refused.begin(), refused.end(), key) == refused.end()) known[key] = option;
  }
  std::vector<std::string> names;
  for (const auto& entry : known) names.push_back(entry.first);
  // All keys are checked before a value is set, so that "given" refers to the command line only.
  std::vector<std::pair<CLI::Option*, std::string>> settings;
  for (const std::string& key : file.keys()) {
    const auto found = known.find(key);
    check_usage(found != known.end(), "[config] {}: there is no option '{}'{}", json_file, key,
                did_you_mean(suggested(key, names)));
    CLI::Option* option = found->second;
    const auto is_given = [](const CLI::Option* other) { return other->count() > 0; };
    const auto& excluded = option->get_excludes();
    if (!file.has(key) || is_given(option) || std::any_of(excluded.begin(), excluded.end(), is_given)) continue;
    for (const CLI::Option* other : excluded) {
      check_usage(!file.has(key_of(*other)), "[config] {}: '{}' and '{}' exclude each other; give only one of them",
                  json_file, key, key_of(*other));
    }
    settings.emplace_back(option, key);
  }
  for (const auto& [option, key] : settings) {
    std::vector<std::string> words = words_of(file.raw().at(key), fmt::format("{}: '{}'", json_file, key));
    if (words.size() > 1 && option->get_expected_max() == 1) words = {fmt::format("{}", fmt::join(words, ","))};
    if (words.empty() || (option->get_expected_max() == 0 && words.front() == "false")) continue;
    try {
      option->add_result(words);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      fail_usage("[config] {}: '{}': {}", json_file, key, error.what());
    }
  }
  for (const auto& setting : settings) take_paths(*app_, *setting.first);
}

nlohmann::ordered_json Command::given_options(const std::vector<std::string>& left_out) const {
  auto given = nlohmann::ordered_json::object();
  for (const CLI::Option* option : app_->get_options()) {
    const std::string key = key_of(*option);
    if (option->count() == 0 || std::find(left_out.begin(), left_out.end(), key) != left_out.end()) continue;
    if (option->get_expected_max() == 0) {
      given[key] = true;
    } else if (option->get_expected_max() == 1) {
      given[key] = option->results().empty() ? "" : option->results().back();
    } else {
      given[key] = option->results();
    }
  }
  return given;
}

void Command::exclude(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void Command::choices(const std::string& name, std::vector<std::string> values) {
  more()[app_->get_option(name)].choices = std::move(values);
}

void Command::rare(const std::string& name) { more()[app_->get_option(name)].rare = true; }

void Command::hide(const std::string& name) { app_->get_option(name)->group(""); }

void Command::group(const std::string& title) { app_->option_defaults()->group(title); }

void Command::examples(const std::string& lines) { app_->footer("Examples:\n" + lines); }

void Command::reads(const std::string& name) { input_options().insert(app_->get_option(name)); }

void Command::names_models(const std::string& name, std::function<std::vector<std::string*>()> values) {
  reads(name);
  more()[app_->get_option(name)].models = std::move(values);
}

void Command::names_models(const std::string& name, std::string& value) {
  names_models(name, [&value] { return std::vector<std::string*>{&value}; });
}

void Command::names_models(const std::string& name, std::vector<std::string>& values) {
  names_models(name, [&values] {
    std::vector<std::string*> all;
    for (std::string& value : values) all.push_back(&value);
    return all;
  });
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + ' ' + app.get_name();
}

std::string Command::full_name() const { return cli::full_name(*app_); }

void Command::runs(std::function<void()> body) {
  runs_over_ranks([command = *this, body = std::move(body)] {
    refuse_ranks(command.full_name());
    body();
  });
}

void Command::runs_over_ranks(std::function<void()> body) {
  const std::vector<CLI::Option*> options = app_->get_options();
  if (std::any_of(options.begin(), options.end(),
                  [](const CLI::Option* option) { return bool(more()[option].models); })) {
    group("Hugging Face hub");
    value(kRevision, "NAME", "Branch, tag or commit of the model [main]", [](const std::string&) { return ""; });
    flag(kDownload, "Download the model first, with the program hf", [] {});
    if (app_->get_option_no_throw("MODEL") == nullptr) rare(kRevision), rare(kDownload);
  }
  app_->callback([app = app_, body = std::move(body)] {
    std::vector<std::string> arguments;
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_positional()) continue;
      arguments.insert(arguments.end(), option->results().begin(), option->results().end());
    }
    const std::string wrong = values_after_list(*app, arguments);
    check_usage(wrong.empty(), "[{}] {}", app->get_name(), wrong);
    for (const CLI::Option* option : app->get_options()) take_paths(*app, *option);
    body();
  });
}

std::vector<std::string> shown_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  if (!option.get_lnames().empty()) names.push_back("--" + option.get_lnames().front());
  return names;
}

std::string values_after_list(const CLI::App& command, const std::vector<std::string>& words) {
  for (const CLI::Option* option : command.get_options()) {
    const auto known = more().find(option);
    if (option->count() == 0 || known == more().end() || !known->second.wrong_value) continue;
    std::vector<std::string> values = option->results();
    const size_t given = values.size();
    for (const std::string& word : words) {
      if (!core::path_exists(word) && known->second.wrong_value(word).empty()) values.push_back(word);
    }
    if (values.size() == given) continue;
    const std::string name = shown_names(*option).back();
    return fmt::format("{}: no such file; the values of {} are separated by commas: {} {}", values[given], name, name,
                       fmt::join(values, ","));
  }
  return {};
}

bool is_rare(const CLI::Option& option) {
  const auto known = more().find(&option);
  return known != more().end() && known->second.rare;
}

std::vector<std::string> known_values(const CLI::Option& option) {
  const auto known = more().find(&option);
  return known == more().end() ? std::vector<std::string>() : known->second.choices;
}

CLI::App& add_command_group(CLI::App& app, const std::string& name, const std::string& description) {
  return *app.add_subcommand(name, description)->require_subcommand(1);
}

}  // namespace alibi::cli
