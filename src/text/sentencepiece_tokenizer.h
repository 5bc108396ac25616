// Subword tokenizers that the SentencePiece library trains: byte-pair encoding or a unigram language model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "alibi/tokenizer.h"
#include "text/tokenizers/sentencepiece.h"

namespace alibi::text {

/// decode(encode(text)) restores any bytes. Characters that the pieces do not cover, including line feeds, are encoded
/// as bytes. A line feed is a token of its own.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is a serialized SentencePiece model; `where` names it in messages. Throws Error like
  /// read_sentencepiece_model().
  SentencePieceTokenizer(std::string model, const std::string& where);

  std::string_view kind() const override { return engine_.algorithm(); }
  int32_t vocab_size() const override { return engine_.end(); }
  int32_t end_of_text() const override { return end_of_text_; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions*) const override {
    return engine_.decode(ids, true, true);
  }
  /// Cache of the ids of words in the same text, because most words repeat.
  using Known = std::unordered_map<std::string_view, std::vector<int32_t>>;

  void encode_unit(std::string_view unit, Known& known, std::vector<int32_t>& ids) const;
  /// Encodes a run of whole characters.
  void encode_characters(std::string_view characters, Known& known, std::vector<int32_t>& ids) const;

  std::string model_;
  tokenizers::SentencePiece engine_;
  int32_t end_of_text_ = -1;
};

struct SentencePieceTraining {
  std::string kind = "bpe";   ///< or "unigram"
  int64_t vocab_size = 8192;  ///< maximum; fewer if the text does not have enough pieces
};

/// Learns the pieces from units of text (see units.h). `next` returns one unit per call, and nothing at the end. The
/// result depends only on the units, not on the number of threads.
std::shared_ptr<const SentencePieceTokenizer> train_sentencepiece(
    const SentencePieceTraining& training, const std::function<std::optional<std::string_view>()>& next);

}  // namespace alibi::text
