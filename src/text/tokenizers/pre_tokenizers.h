// Pre-tokenizers of a tokenizer.json, which split text into words.
#pragma once

#include <functional>
#include <string_view>

#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Receives a word, never empty. `first` tells whether it is at the beginning of the whole text.
using TakeWord = std::function<void(std::string_view word, bool first)>;

/// Splits a text that is not empty.
using PreTokenizer = std::function<void(std::string_view text, bool first, const TakeWord& take)>;

/// Throws Error that names the place and the type if it is not supported.
PreTokenizer make_pre_tokenizer(const Part& part);

}  // namespace alibi::text::tokenizers
