// Documents as one stream of token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "alibi/tokenizer.h"
#include "text/documents.h"

namespace alibi::text {

/// Encodes the documents one after the other, each followed by end_of_text. If end_of_text is also the end of a line,
/// it is added only to a document whose last line is not terminated. The first token is predicted from an implied
/// end_of_text, so every token, including the ends, is predicted once. Throws Error if there are no documents. `append`
/// receives the stream in parts, with the number of bytes of text in each part.
void encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents,
                   const std::function<void(std::span<const int32_t> ids, int64_t bytes)>& append);

/// Encodes the documents in memory.
std::vector<int32_t> encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents);

}  // namespace alibi::text
