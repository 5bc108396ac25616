// Which files hold a tokenizer in a model folder.
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

/// No tokenizer is larger; what claims to be is not read.
inline constexpr size_t kMostTokenizerBytes = size_t{1} << 30;

/// How others are to read the tokenizer; nothing here reads it.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// The names of all of these.
std::set<std::string> tokenizer_file_names();

/// The file from which Tokenizer::load() makes the tokenizer of a folder; whether or not it is there.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

/// The tokenizer's fingerprint as files have it: 16 hexadecimal digits.
std::string fingerprint_text(const Tokenizer& tokenizer);

/// Removes the files of other kinds of tokenizers that an earlier model left in the folder: they would be read instead.
void remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep);

}  // namespace alibi::text
