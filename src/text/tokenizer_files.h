// The files of a tokenizer in a model folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

#include "alibi/tokenizer.h"

namespace alibi::text {

/// Vocabulary of words, a word and its count in each line: the dictionary format of fairseq.
inline constexpr const char* kWordsFile = "dict.txt";
/// A model of SentencePiece.
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
/// A tokenizer of Hugging Face's library.
inline constexpr const char* kHuggingFaceFile = "tokenizer.json";

/// Larger tokenizer files are refused.
inline constexpr size_t kMostTokenizerBytes = size_t{1} << 30;

/// Describes the tokenizer for other programs; alibi does not read it.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// The names of all these files.
std::set<std::string> tokenizer_file_names();

/// The file from which Tokenizer::load() reads the tokenizer of a folder, whether it exists or not.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

/// The tokenizer's fingerprint as files have it: 16 hexadecimal digits.
std::string fingerprint_text(const Tokenizer& tokenizer);

/// Removes files of other kinds of tokenizers, which an earlier model left in the folder and which would be read
/// instead.
void remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep);

}  // namespace alibi::text
