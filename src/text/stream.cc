#include "text/stream.h"

#include "core/check.h"
#include "core/parallel.h"

namespace alibi {

std::vector<int32_t> encode_stream(const Tokenizer& tokenizer, const std::vector<Document>& documents) {
  check(!documents.empty(), "[text] no documents to encode");
  std::vector<std::vector<int32_t>> parts(documents.size());
  parallel_for(static_cast<int64_t>(documents.size()), [&](int64_t i) {
    parts[static_cast<size_t>(i)] = tokenizer.encode(documents[static_cast<size_t>(i)].text);
  });
  size_t count = documents.size();
  for (const auto& part : parts) count += part.size();
  std::vector<int32_t> stream;
  stream.reserve(count);
  for (auto& part : parts) {
    stream.insert(stream.end(), part.begin(), part.end());
    const bool ended = tokenizer.end_of_text_ends_lines() && !part.empty() && part.back() == tokenizer.end_of_text();
    if (!ended) stream.push_back(tokenizer.end_of_text());
    part = {};  // gives the memory back as the stream grows
  }
  return stream;
}

}  // namespace alibi
