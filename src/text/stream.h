// Documents as one stream of token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "alibi/tokenizer.h"
#include "text/documents.h"

namespace alibi::text {

/// The documents one after the other, each followed by end_of_text; where that ends lines, only a document whose last
/// line is not ended already. The stream stands after an implied end_of_text: that is the input from which its first
/// token is predicted, so every token of it, the ends included, is predicted once. Throws Error if there are no
/// documents. `append` gets the stream in parts, and how many bytes of text each stands for.
void encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents,
                   const std::function<void(std::span<const int32_t> ids, int64_t bytes)>& append);

/// The same in memory.
std::vector<int32_t> encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents);

}  // namespace alibi::text
