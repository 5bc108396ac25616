#include "given_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "numbers.h"

namespace alibi::cli {
namespace {

/// "a, b or c"
std::string any_of(const std::vector<std::string>& words) {
  const std::string_view last = words.back();
  return words.size() == 1 ? words.back()
                           : fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), last);
}

}  // namespace

std::string help_text(const std::vector<std::string>& choices, const char* help, const std::string& default_text) {
  std::string text = choices.empty() ? help : fmt::format("{}: {}", help, any_of(choices));
  return default_text.empty() ? text : fmt::format("{} [{}]", text, default_text);
}

std::string read_value(const std::string& word, const formats::OptionRange& range,
                       const std::vector<std::string>& choices, OptionValue& value) {
  if (auto* count = std::get_if<int64_t>(&value)) return read_count(word, range, *count);
  if (auto* seed = std::get_if<uint64_t>(&value)) return read_seed(word, *seed);
  if (auto* number = std::get_if<double>(&value)) return read_number(word, range, *number);
  if (auto* numbers = std::get_if<std::vector<double>>(&value)) {
    std::istringstream in(word);
    numbers->clear();
    for (std::string one; std::getline(in, one, ',');) {
      const std::string wrong = read_number(one, range, numbers->emplace_back());
      if (!wrong.empty()) return wrong;
    }
    return numbers->empty() ? "found no numbers, expected numbers separated by commas" : "";
  }
  if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
    return fmt::format("found '{}', expected one of {}", word, fmt::join(choices, ", "));
  }
  if (std::holds_alternative<bool>(value)) {
    value = word == "true";
  } else {
    value = word;
  }
  return {};
}

}  // namespace alibi::cli
