#include "compare/held_out.h"

#include <algorithm>
#include <cmath>

#include "generate/utf8.h"

namespace alibi {

int64_t bytes_of_prefix(const TrainingData& data, size_t tokens) {
  if (tokens == data.valid.tokens.size()) return data.valid_bytes;
  const auto decoded = [&](std::span<const int32_t> ids) {
    return static_cast<double>(data.tokenizer->decode(ids).size());
  };
  const double share = decoded(data.valid.tokens.first(tokens)) / decoded(data.valid.tokens);
  return std::llround(share * static_cast<double>(data.valid_bytes));
}

std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count) {
  std::span<const int32_t> first = stream.first(std::min(stream.size(), static_cast<size_t>(count)));
  if (!tokenizer.end_of_text_ends_lines()) {
    const auto end = std::find(first.begin(), first.end(), tokenizer.end_of_text());
    first = first.first(static_cast<size_t>(end - first.begin()));
  }
  const std::string text = tokenizer.decode(first);
  return text.substr(0, whole_characters(text, 0));
}

}  // namespace alibi
