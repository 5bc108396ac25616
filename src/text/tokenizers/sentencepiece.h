// A SentencePiece model that encodes exactly as the library does, with any normalization.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizers/charsmap.h"
#include "text/tokenizers/engine.h"
#include "text/tokenizers/sentencepiece_model.h"
#include "text/tokenizers/trie.h"

namespace alibi::text::tokenizers {

class SentencePiece final : public Engine {
 public:
  /// Throws Error that begins with `where` if the normalization rules are damaged.
  SentencePiece(SentencePieceModel model, const std::string& where);

  std::string_view algorithm() const override;
  int32_t end() const override { return static_cast<int32_t>(model_.pieces.size()); }
  std::optional<int32_t> id_of(std::string_view token) const override;
  bool is_special(std::string_view token) const override;
  /// The library does not recognize special tokens in text, so `parse_special` has no effect.
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const override;
  Sequence frame(std::vector<int32_t> first, const std::optional<std::vector<int32_t>>& second,
                 bool add_special) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special, bool raw) const override;

  int32_t id_of_byte(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }
  /// Whether no piece contains a space that follows other characters.
  bool words_apart() const { return words_apart_; }

 private:
  using Type = SentencePieceModel::Type;
  using Pieces = std::vector<std::pair<std::string_view, int32_t>>;

  Type type_of(int32_t id) const { return model_.pieces[static_cast<size_t>(id)].type; }
  float score_of(int32_t id) const { return model_.pieces[static_cast<size_t>(id)].score; }
  std::string normalize(std::string_view text) const;
  /// The replacement of the beginning of the text, and the number of bytes that it replaces.
  std::pair<std::string_view, size_t> normalize_prefix(std::string_view text) const;
  void encode_bpe(std::string_view text, Pieces& pieces) const;
  void encode_unigram(std::string_view text, Pieces& pieces) const;
  void add(const Pieces& pieces, std::vector<int32_t>& ids) const;

  SentencePieceModel model_;
  std::string where_;
  std::optional<Charsmap> charsmap_;
  std::unordered_map<std::string_view, int32_t> ids_;  ///< pieces that text can be encoded to
  std::unordered_map<std::string_view, int32_t> reserved_;
  std::unique_ptr<const Trie> pieces_, user_defined_;
  std::array<int32_t, 256> bytes_{};
  int32_t unknown_ = 0;
  std::optional<int32_t> begin_, end_;
  float lowest_score_ = 0, highest_score_ = 0;
  bool words_apart_ = true;
};

}  // namespace alibi::text::tokenizers
