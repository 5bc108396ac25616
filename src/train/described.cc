#include "train/described.h"

#include <algorithm>

namespace alibi {
namespace {

/// Nothing where the value is that of no option in use.
template <class Options>
std::string default_among(const Option<Options>& option, const std::vector<Options>& all) {
  if (option.automatic) return "auto";
  std::vector<std::string> texts;
  for (const Options& options : all) {
    texts.push_back(is_used(option, options) ? text_of(option.get(options)) : std::string());
  }
  const bool is_everyones = std::count(texts.begin(), texts.end(), texts.front()) == std::ssize(texts);
  if (is_everyones) return texts.front();
  return "the preset's" + (texts.front().empty() ? "" : fmt::format("; {}: {}", preset_names().front(), texts.front()));
}

}  // namespace

std::string option_key(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

std::string text_of(const OptionValue& value) {
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return fmt::format("{}", fmt::join(*list, ","));
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
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

std::string default_text(const Option<TrainOptions>& option) {
  std::vector<TrainOptions> all;
  for (const std::string& name : preset_names()) all.push_back(training_defaults(name));
  return default_among(option, all);
}

std::string default_text(const Option<TrainRun>& option) { return default_among(option, {TrainRun()}); }

std::string default_text(const Option<ModelOptions>& option) {
  if (option.default_text) return option.default_text;
  const OptionValue value = default_of(option);
  return is_in(option.range, value) ? text_of(value) : "the preset's";
}

}  // namespace alibi
