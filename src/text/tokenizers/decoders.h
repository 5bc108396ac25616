// Decoders of a tokenizer.json, which convert tokens to text.
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
  /// Changes the tokens so that they can be joined. With `raw`, the bytes of incomplete characters are kept, because
  /// later tokens may complete them. Otherwise they become U+FFFD.
  virtual void apply(std::vector<std::string>& tokens, bool raw) const = 0;
};

/// Throws Error that names the place and the type if it is not supported.
std::unique_ptr<const Decoder> make_decoder(const Part& part);

}  // namespace alibi::text::tokenizers
