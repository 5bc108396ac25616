// A model of SentencePiece, read and checked before anything uses it: the library trusts its files.
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
  std::string unknown_surface = " \xe2\x81\x87 ";  ///< what the unknown is decoded to
  std::string begin_piece = "<s>", end_piece = "</s>";

  // How text is normalized.
  std::string charsmap;  ///< empty: characters stay as they are
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  bool space_as_suffix = false;
};

/// Reads the serialized protocol buffer (sentencepiece_model.proto). Throws Error that begins with `where` if it is
/// damaged, or a model of another kind.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view where);
/// The same, written.
std::string write_sentencepiece_model(const SentencePieceModel& model);

/// Empty, if the model keeps text as it is (no normalization, no space put in front or taken away), falls back to
/// bytes, and has no pieces that the text could be mistaken for: then every text can be encoded, and decoding gives it
/// back. Else what is in the way.
std::string why_not_lossless(const SentencePieceModel& model);

/// The same model without the texts that the library would encode while it reads it: nothing bounds their length.
std::string without_self_test(std::string_view bytes);

}  // namespace alibi::text::tokenizers
