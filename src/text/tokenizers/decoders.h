// Decoders of a tokenizer.json, which convert tokens to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Changes the tokens so that they can be joined. With `raw`, the bytes of incomplete characters are kept, because
/// later tokens may complete them. Otherwise they become U+FFFD.
using Decoder = std::function<void(std::vector<std::string>& tokens, bool raw)>;

/// Throws Error that names the place and the type if it is not supported.
Decoder make_decoder(const Part& part);

}  // namespace alibi::text::tokenizers
