// Values of described options (formats/option.h) as text and as JSON.
#pragma once

#include <string>

#include "formats/json.h"
#include "formats/option.h"

namespace alibi::formats {

/// The value as a person would write it.
std::string text_of(const OptionValue& value);
/// The same with six digits per number, for values that were rounded to float32.
std::string short_text_of(const OptionValue& value);
/// "at least 0 and below 1"
std::string text_of(const OptionRange& range);
OrderedJson json_of(const OptionValue& value);
bool is_in(const OptionRange& range, const OptionValue& value);

}  // namespace alibi::formats
