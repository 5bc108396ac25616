// A model of SentencePiece, read and checked before the library sees it: the library trusts its files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

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
};

/// Reads the serialized protocol buffer (sentencepiece_model.proto). Throws Error that begins with `where` unless the
/// model keeps text as it is (no normalisation, no space put in front or taken away), falls back to bytes, and is made
/// of well-formed pieces: then every text can be encoded, and decoding gives it back.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view where);

/// The same model without the texts that the library would encode while it reads it: nothing bounds their length.
std::string without_self_test(std::string_view bytes);

}  // namespace alibi::text
