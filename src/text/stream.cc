#include "text/stream.h"

#include "core/check.h"
#include "text/pieces.h"

namespace alibi::text {

void encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents,
                   const std::function<void(std::span<const int32_t> ids, int64_t bytes)>& append) {
  check(!documents.empty(), "[text] no documents to encode");
  for_pieces(
      documents, [&](std::string_view text) { return tokenizer.encode(text); },
      [&](std::vector<int32_t> ids, const TextPiece& piece) {
        const int32_t end = tokenizer.end_of_text();
        const bool ended = tokenizer.end_of_text_ends_lines() && !ids.empty() && ids.back() == end;
        if (piece.last && !ended) ids.push_back(end);
        append(ids, static_cast<int64_t>(piece.text.size()));
      },
      !tokenizer.splits_at_lines());
}

std::vector<int32_t> encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents) {
  std::vector<int32_t> stream;
  encode_stream(tokenizer, documents,
                [&](std::span<const int32_t> ids, int64_t) { stream.insert(stream.end(), ids.begin(), ids.end()); });
  return stream;
}

}  // namespace alibi::text
