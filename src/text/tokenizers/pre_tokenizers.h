// Pre-tokenizers of a tokenizer.json, which split text into words.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Receives a word, never empty. `first` tells whether it is at the beginning of the whole text.
using TakeWord = std::function<void(std::string_view word, bool first)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// `text` is not empty.
  virtual void split(std::string_view text, bool first, const TakeWord& take) const = 0;
};

/// Throws Error that names the place and the type if it is not supported.
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Part& part);

}  // namespace alibi::text::tokenizers
