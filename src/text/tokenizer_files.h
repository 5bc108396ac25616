// Which files hold a tokenizer in a model folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

namespace alibi {

/// Vocabulary of words, a word and its count in each line: the dictionary format of fairseq.
inline constexpr const char* kWordsFile = "dict.txt";
/// A model of SentencePiece.
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
/// A tokenizer of Hugging Face's library.
inline constexpr const char* kHuggingFaceFile = "tokenizer.json";

/// No tokenizer is larger; what claims to be is not read.
inline constexpr size_t kMostTokenizerBytes = size_t{1} << 30;

/// Removes the files of other kinds of tokenizers that an earlier model left in the folder: they would be read instead.
void remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep);

}  // namespace alibi
