// A SentencePiece model that is read and fully checked before use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text::tokenizers {

struct SentencePieceModel {
  enum class Algorithm { unigram = 1, bpe = 2 };
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  Algorithm algorithm = Algorithm::unigram;
  std::vector<Piece> pieces;  ///< by id
  bool byte_fallback = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  ///< the text that an unknown token is decoded to
  std::string begin_piece = "<s>", end_piece = "</s>";

  // How text is normalized.
  std::string charsmap;  ///< normalization rules; empty if characters are not changed
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool space_as_suffix = false;
};

/// Reads the serialized protocol buffer (sentencepiece_model.proto). Throws Error that begins with `where` if it is
/// damaged or not such a model.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view where);
/// Serializes the model.
std::string write_sentencepiece_model(const SentencePieceModel& model);

/// Returns "" if every text can be encoded and decoding restores it: the model does not change text (no normalization,
/// no spaces added or removed), falls back to bytes, and has no pieces that text could be confused with. Otherwise
/// returns the reason.
std::string why_not_lossless(const SentencePieceModel& model);

}  // namespace alibi::text::tokenizers
