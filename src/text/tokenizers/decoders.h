// Decoders of a tokenizer.json: text from tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens so that they can be joined. `raw`: bytes of characters that are not whole stay as they are,
  /// for they may be completed by what follows; else they become U+FFFD.
  virtual void apply(std::vector<std::string>& tokens, bool raw) const = 0;
};

/// Throws Error that names the place and the type for what cannot be read.
std::unique_ptr<const Decoder> make_decoder(const Part& part);

}  // namespace alibi::text::tokenizers
