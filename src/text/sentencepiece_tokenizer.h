// Pieces of words through the SentencePiece library: byte-pair encoding or a unigram language model.
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

/// decode(encode(text)) is the text, whatever its bytes: what the pieces do not cover is written in bytes, line feeds
/// among it. A line feed is a token of its own.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` as the library writes it; `where` names it in messages. Throws Error as read_sentencepiece_model() does.
  SentencePieceTokenizer(std::string model, const std::string& where);
  static std::shared_ptr<const SentencePieceTokenizer> load(const std::filesystem::path& file);

  std::string_view kind() const override { return kind_; }
  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  int32_t end_of_text() const override { return end_of_text_; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  /// Ids of words met before in the same text: most words of a text are.
  using Known = std::unordered_map<std::string_view, std::vector<int>>;

  void encode_unit(std::string_view unit, Known& known, std::vector<int32_t>& ids) const;
  /// A run of whole characters that the library takes as they are.
  void encode_characters(std::string_view characters, Known& known, std::vector<int32_t>& ids) const;

  std::string model_;
  std::string_view kind_;
  std::vector<std::string> texts_;  ///< [vocab_size] what each id stands for
  std::vector<int32_t> bytes_;      ///< [256] ids
  int32_t end_of_text_ = -1;
  bool has_space_ = false;   ///< else the library would write the bytes of its mark, which is another character
  bool words_apart_ = true;  ///< no piece continues after a space that follows other characters
  sentencepiece::SentencePieceProcessor processor_;
};

struct SentencePieceTraining {
  std::string kind = "bpe";   ///< or "unigram"
  int64_t vocab_size = 8192;  ///< maximum; there are fewer if the text does not have enough pieces
};

/// Learns the pieces from units of text (see units.h), which `next` gives one after the other until there is none.
/// The same units give the same tokenizer, whatever the number of threads.
std::shared_ptr<const SentencePieceTokenizer> train_sentencepiece(
    const SentencePieceTraining& training, const std::function<std::optional<std::string_view>()>& next);

}  // namespace alibi::text
