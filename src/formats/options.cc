#include "formats/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace alibi::formats {

std::string text_of(const OptionValue& value) {
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return fmt::format("{}", fmt::join(*list, ","));
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

std::string short_text_of(const OptionValue& value) {
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return fmt::format("{:g}", fmt::join(*list, " "));
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:g}", *number);
  return text_of(value);
}

std::string text_of(const OptionRange& range) {
  if (range.least && range.most) return fmt::format("{} to {}", *range.least, *range.most);
  std::vector<std::string> bounds;
  const auto add = [&](const char* what, const std::optional<double>& bound) {
    if (bound) bounds.push_back(fmt::format("{} {}", what, *bound));
  };
  add("at least", range.least);
  add("above", range.above);
  add("at most", range.most);
  add("below", range.below);
  return fmt::format("{}", fmt::join(bounds, " and "));
}

bool is_in(const OptionRange& range, const OptionValue& value) {
  return std::visit(
      [&](const auto& held) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(held)>>) {
          return range.contains(static_cast<double>(held));
        } else if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::vector<double>>) {
          return std::all_of(held.begin(), held.end(), [&](double x) { return range.contains(x); });
        } else {
          return true;
        }
      },
      value);
}

OrderedJson json_of(const OptionValue& value) {
  return std::visit([](const auto& held) { return OrderedJson(held); }, value);
}

}  // namespace alibi::formats
