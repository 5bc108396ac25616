#include "train/described.h"

#include <algorithm>

namespace alibi::training {
namespace {

/// Returns "" if no preset uses the option.
template <class Options>
std::string default_among(const formats::Option<Options>& option, const std::vector<Options>& all) {
  if (option.automatic) return "auto";
  std::vector<std::string> texts;
  for (const Options& options : all) {
    texts.push_back(is_used(option, options) ? formats::text_of(option.get(options)) : std::string());
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

std::string default_text(const formats::Option<TrainOptions>& option) {
  std::vector<TrainOptions> all;
  for (const std::string& name : preset_names()) all.push_back(training_defaults(name));
  return default_among(option, all);
}

std::string default_text(const formats::Option<TrainRun>& option) { return default_among(option, {TrainRun()}); }

std::string default_text(const formats::Option<LanguageModelConfig>& option) {
  return option.default_text ? option.default_text : formats::text_of(default_of(option));
}

}  // namespace alibi::training
