// Documents as one stream of token ids.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tokenizer.h"
#include "text/documents.h"

namespace alibi {

/// The documents one after the other, each followed by end_of_text; where that ends lines, only a document whose last
/// line is not ended already. The stream stands after an implied end_of_text:
/// that is the input from which its first token is predicted, so every token of it, the ends included, is predicted
/// once. Throws Error if there are no documents.
std::vector<int32_t> encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents);

}  // namespace alibi
