#include "train/described.h"

#include <algorithm>

namespace alibi::training {
namespace {

template <class Options>
std::string text_among(const formats::Option<Options>& option, const Options& options) {
  return is_used(option, options) ? formats::text_of(option.get(options)) : std::string();
}

}  // namespace

std::string default_among_presets(const std::function<std::string(const std::string& preset)>& value) {
  std::string text, preset;
  bool is_everyones = true;
  for (const std::string& name : preset_names()) {
    const std::string other = value(name);
    if (name == preset_names().front()) text = other;
    is_everyones = is_everyones && other == text;
    if (!text.empty() && preset.empty()) preset = name;
    if (text.empty() && !other.empty()) text = other, preset = name;
  }
  return is_everyones || text.empty() ? text : fmt::format("{} for {}", text, preset);
}

std::string option_key(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

std::string default_text(const formats::Option<TrainOptions>& option) {
  if (option.automatic) return "auto";
  return default_among_presets([&](const std::string& name) { return text_among(option, training_defaults(name)); });
}

std::string default_text(const formats::Option<TrainRun>& option) { return text_among(option, TrainRun()); }

std::string default_text(const formats::Option<LanguageModelConfig>& option) {
  if (!option.default_text) return formats::text_of(default_of(option));
  if (std::string_view(option.default_text) != formats::kPresetDefault) return option.default_text;
  return default_among_presets([&](const std::string& name) { return formats::text_of(option.get(preset(name))); });
}

}  // namespace alibi::training
