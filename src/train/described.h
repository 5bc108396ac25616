// What is said of described options (alibi/options.h): names and texts for the command and its documentation, JSON.
#pragma once

#include <string>
#include <string_view>

#include "alibi/model_options.h"
#include "alibi/train.h"
#include "core/check.h"
#include "formats/options.h"

namespace alibi::training {

/// "learning-rate": of the command line and train.json.
std::string option_key(std::string_view name);
/// What the command takes where the option is not given: "0.1", or "the preset's; tiny: 0.004". Empty: nothing to say.
std::string default_text(const Option<TrainOptions>& option);
std::string default_text(const Option<TrainRun>& option);
std::string default_text(const Option<LanguageModelConfig>& option);

template <class Options>
OptionValue default_of(const Option<Options>& option) {
  return option.get(Options());
}

/// Of options that say the same in two ways, whether this one does.
template <class Options>
bool is_used(const Option<Options>& option, const Options& options) {
  if (option.instead_of) return option.get(options) != default_of(option);
  for (const Option<Options>& other : options_of<Options>) {
    if (other.instead_of && std::string_view(other.instead_of) == option.name && is_used(other, options)) return false;
  }
  return true;
}

/// Throws UsageError for a value out of range.
template <class Options>
void check_ranges(const Options& options) {
  for (const Option<Options>& option : options_of<Options>) {
    const bool may_be_unused = option.instead_of != nullptr;
    check_usage(formats::is_in(option.range, option.get(options)) || (may_be_unused && !is_used(option, options)),
                "[train] {} is {}, expected {}{}", option.name, formats::text_of(option.get(options)),
                formats::text_of(option.range), may_be_unused ? ", or " + formats::text_of(default_of(option)) : "");
  }
}

}  // namespace alibi::training
