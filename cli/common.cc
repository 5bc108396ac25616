#include "common.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "alibi/language_model.h"
#include "alibi/runtime.h"
#include "core/check.h"
#include "core/files.h"

namespace alibi::cli {
namespace {

/// Replaces "5k" by "5000"; returns what is wrong, or nothing.
std::string parse_count(std::string& text) {
  std::string_view digits = text;
  int64_t unit = 1;
  if (!digits.empty() && (digits.back() == 'k' || digits.back() == 'M')) {
    unit = digits.back() == 'k' ? 1'000 : 1'000'000;
    digits.remove_suffix(1);
  }
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size() || value < 1 ||
      value > std::numeric_limits<int64_t>::max() / unit) {
    return fmt::format("'{}' found, a whole number of at least 1 expected (k and M are understood: 5k, 2M)", text);
  }
  text = std::to_string(value * unit);
  return {};
}

std::string check_number(std::string& text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1e300) {
    return fmt::format("'{}' found, a number of at least 0 expected", text);
  }
  return {};
}

std::string check_seed(std::string& text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) {
    return fmt::format("'{}' found, a whole number of at least 0 expected", text);
  }
  return {};
}

}  // namespace

void CommonOptions::apply() const {
  if (threads > 0) set_threads(threads);
  if (json.empty()) return;
  if (json.has_parent_path()) make_folder(json.parent_path());
  check(!std::filesystem::is_directory(json), "[--json] {} is a folder, expected the name of a file", json.string());
}

void CommonOptions::write_json(const nlohmann::ordered_json& results) const {
  // Text that a model wrote need not be valid UTF-8.
  write_json(results.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void CommonOptions::write_json(const std::string& results) const {
  if (!json.empty()) write_file(json, results);
}

void add_common(CLI::App& command, CommonOptions& options) {
  command.add_option("--json", options.json, "Also write the results to this file, as JSON")
      ->type_name("FILE")
      ->group("Common");
  command.add_option("--threads", options.threads, "Threads to compute with; results do not depend on it [all cores]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""))
      ->group("Common");
  command.add_option("--seed", options.seed, "All random numbers follow from it")
      ->type_name("N")
      ->transform(CLI::Validator(check_seed, "", "seed"))
      ->capture_default_str()
      ->group("Common");
}

CLI::Option* add_count(CLI::App& command, const std::string& name, int64_t& value, const std::string& help) {
  return command.add_option(name, value, help)->type_name("N")->transform(CLI::Validator(parse_count, "", "count"));
}

CLI::Option* add_counts(CLI::App& command, const std::string& name, std::vector<int64_t>& values,
                        const std::string& help) {
  return command.add_option(name, values, help)
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::Validator(parse_count, "", "count"));
}

CLI::Option* add_number(CLI::App& command, const std::string& name, double& value, const std::string& help) {
  return command.add_option(name, value, help)->type_name("X")->transform(CLI::Validator(check_number, "", "number"));
}

CLI::Option* add_preset(CLI::App& command, std::string& preset) {
  return command.add_option("--preset", preset, fmt::format("Size of the model: {}", fmt::join(preset_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
}

CLI::Option* add_texts(CLI::App& command, std::vector<std::string>& texts) {
  return command.add_option("TEXT", texts, "Text files, folders (all text files in them) or - for standard input")
      ->type_name("");
}

CLI::Option* add_valid(CLI::App& command, std::vector<std::string>& texts) {
  return command.add_option("--valid", texts, "Text to hold out, may be repeated [some of the files, by a fixed rule]")
      ->type_name("TEXT")
      ->allow_extra_args(false);
}

}  // namespace alibi::cli
