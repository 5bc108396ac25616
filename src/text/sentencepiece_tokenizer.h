// Subword tokenizers of the SentencePiece library: byte-pair encoding or a unigram language model.
#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "alibi/tokenizer.h"

namespace alibi::text {

/// decode(encode(text)) restores any bytes. Characters that the pieces do not cover, including line feeds, are encoded
/// as bytes. A line feed is a token of its own.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is a serialized SentencePiece model; `where` names it in messages. Throws Error like
  /// read_sentencepiece_model().
  SentencePieceTokenizer(std::string model, const std::string& where);
  static std::shared_ptr<const SentencePieceTokenizer> load(const std::filesystem::path& file);

  std::string_view kind() const override { return kind_; }
  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  int32_t end_of_text() const override { return end_of_text_; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const override;
  /// Cache of the ids of words in the same text, because most words repeat.
  using Known = std::unordered_map<std::string_view, std::vector<int>>;

  void encode_unit(std::string_view unit, Known& known, std::vector<int32_t>& ids) const;
  /// Encodes a run of whole characters that the library does not change.
  void encode_characters(std::string_view characters, Known& known, std::vector<int32_t>& ids) const;

  std::string model_;
  std::string_view kind_;
  std::vector<std::string> texts_;  ///< [vocab_size]: the text of each id
  std::vector<int32_t> bytes_;      ///< [256]: the id of each byte
  int32_t end_of_text_ = -1;
  bool has_space_ = false;   ///< otherwise the library would encode the mark, which is another character
  bool words_apart_ = true;  ///< whether no piece contains a space that follows other characters
  sentencepiece::SentencePieceProcessor processor_;
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
