// What must hold for every tokenizer that was read from a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "harness.h"

namespace alibi::fuzz {

/// Loads the tokenizer of a folder, encodes the text and decodes every id. Ends the process if ids are out of range, if
/// the end of a text is found in it, or if a text does not come back from a tokenizer that promises it.
void use_tokenizer(const std::filesystem::path& folder, std::string_view text);

/// A model of SentencePiece with the pieces that every one must have and a few words.
std::string sentencepiece_model(bool bpe);
/// A piece of such a model, as the file has it.
std::string sentencepiece_piece(std::string_view text, float score, unsigned type);

}  // namespace alibi::fuzz
