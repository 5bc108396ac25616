// Names, default texts and checks of described options (train/option_list.h, model/config_fields.h), for the command
// line and its documentation.
#pragma once

#include <cctype>
#include <functional>
#include <string>
#include <string_view>

#include "alibi/train.h"
#include "core/check.h"
#include "formats/options.h"
#include "model/config_fields.h"
#include "train/option_list.h"

namespace alibi::training {

/// "learning-rate": the name on the command line and in train.json.
std::string option_key(std::string_view name);
/// The value of every preset, as `--help` shows a default: "0.1", or "0.004 for tiny" if the presets differ. The first
/// preset with a value is named. May be empty.
std::string default_among_presets(const std::function<std::string(const std::string& preset)>& value);
/// The default as `--help` shows it; see default_among_presets().
std::string default_text(const formats::Option<TrainOptions>& option);
std::string default_text(const formats::Option<TrainRun>& option);
std::string default_text(const formats::Option<LanguageModelConfig>& option);

template <class Options>
OptionValue default_of(const formats::Option<Options>& option) {
  return option.get(Options());
}

/// "--learning-rate", or "--no-causal" for a flag whose default is true.
template <class Options>
std::string option_word(const formats::Option<Options>& option) {
  return (default_of(option) == OptionValue(true) ? "--no-" : "--") + option_key(option.name);
}
/// The help text of a flag: that of the option, or "Disable ..." if its default is true.
template <class Options>
std::string flag_help(const formats::Option<Options>& option) {
  if (default_of(option) != OptionValue(true)) return option.help;
  std::string help = option.help;
  help.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(help.front())));
  return "Disable " + help;
}
/// Whether an option applies. Of a pair such as warmup_steps and warmup_fraction, the option that the other one
/// overrides does not apply.
template <class Options>
bool is_used(const formats::Option<Options>& option, const Options& options) {
  if (option.instead_of) return option.get(options) != default_of(option);
  for (const formats::Option<Options>& other : formats::options_of<Options>) {
    if (other.instead_of && std::string_view(other.instead_of) == option.name && is_used(other, options)) return false;
  }
  return true;
}

/// Throws UsageError if a value is out of range.
template <class Options>
void check_ranges(const Options& options) {
  for (const formats::Option<Options>& option : formats::options_of<Options>) {
    const bool may_be_unused = option.instead_of != nullptr;
    check_usage(formats::is_in(option.range, option.get(options)) || (may_be_unused && !is_used(option, options)),
                "[train] {} is {}, expected {}{}", option.name, formats::text_of(option.get(options)),
                formats::text_of(option.range), may_be_unused ? ", or " + formats::text_of(default_of(option)) : "");
  }
}

}  // namespace alibi::training
