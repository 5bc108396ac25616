// Pre-tokenizers of a tokenizer.json: they cut text into words.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Takes a word, never empty. `first`: it begins where the whole text begins.
using TakeWord = std::function<void(std::string_view word, bool first)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// `text` is not empty.
  virtual void split(std::string_view text, bool first, const TakeWord& take) const = 0;
};

/// Throws Error that names the place and the type for what cannot be read.
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Part& part);

}  // namespace alibi::text::tokenizers
