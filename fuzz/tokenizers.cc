#include "tokenizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "alibi/tokenizer.h"

namespace alibi::fuzz {
namespace {

/// A field of a protocol buffer: wire type 0 (number) and 2 (bytes).
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string field(unsigned number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string field(unsigned number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

}  // namespace

void use_tokenizer(const std::filesystem::path& folder, std::string_view text) {
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(folder);
  const int32_t size = tokenizer->vocab_size();
  const bool made_elsewhere = tokenizer->kind().starts_with("hf-") || tokenizer->kind().starts_with("spm-");
  const std::vector<int32_t> ids = tokenizer->encode(text);
  for (const int32_t id : ids) demand(id >= 0 && id < size, "ids are in range");
  const std::string decoded = tokenizer->decode(ids);
  demand(made_elsewhere || tokenizer->kind() == "words" || decoded == text, "the text comes back");
  const std::vector<int32_t> framed = tokenizer->encode(text, EncodeOptions());
  for (const int32_t id : framed) demand(id >= 0 && id < size, "ids are in range");
  tokenizer->decode(framed, {.skip_special_tokens = false});
  std::vector<int32_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  tokenizer->decode(all);
  const int32_t end = tokenizer->end_of_text();  // refused last: only few files name none
  demand(end >= 0 && end < size, "the end of a text is one of the ids");
  const bool ends = std::find(ids.begin(), ids.end(), end) != ids.end();
  demand(!ends || tokenizer->end_of_text_ends_lines(), "a text cannot end itself");
}

std::string sentencepiece_piece(std::string_view text, float score, unsigned type) {
  std::string bytes(sizeof score, '\0');
  std::memcpy(bytes.data(), &score, sizeof score);
  const std::string score_field = varint(2 << 3 | 5) + bytes;  // wire type 5
  return field(1, field(1, text) + score_field + field(3, type));
}

std::string sentencepiece_model(bool bpe) {
  constexpr unsigned normal = 1, unknown = 2, control = 3, byte = 6;
  std::string model = sentencepiece_piece("<unk>", 0, unknown) + sentencepiece_piece("</s>", 0, control);
  for (int i = 0; i < 256; ++i) model += sentencepiece_piece(fmt::format("<0x{:02X}>", i), 0, byte);
  float score = 0;
  for (const char* text : {"he", "the", "\xe2\x96\x81the", "t", "h", "e", "\xe2\x96\x81", "\xc3\xa9"}) {
    model += sentencepiece_piece(text, score--, normal);
  }
  model += field(2, field(3, bpe ? 2 : 1) + field(35, uint64_t{1}));
  return model + field(3, field(1, "identity") + field(3, uint64_t{0}) + field(4, uint64_t{0}) + field(5, uint64_t{1}));
}

}  // namespace alibi::fuzz
