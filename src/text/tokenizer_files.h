// The files of a tokenizer in a model folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "alibi/tokenizer.h"
#include "formats/json.h"

namespace alibi::text {

/// Vocabulary of words, a word and its count in each line: the dictionary format of fairseq.
inline constexpr const char* kWordsFile = "dict.txt";
/// A model of SentencePiece.
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
/// A tokenizer of Hugging Face's library.
inline constexpr const char* kHuggingFaceFile = "tokenizer.json";

/// Larger tokenizer files are refused.
inline constexpr size_t kMaxTokenizerBytes = size_t{1} << 30;

/// Describes the tokenizer for other programs; alibi does not read it.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// A token in "added_tokens" of kHuggingFaceFile.
template <class Json = formats::Json>
Json added_token(int64_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", !special}, {"special", special}};
}

/// The names of all these files.
std::set<std::string> tokenizer_file_names();

/// The file from which Tokenizer::load() reads a folder's tokenizer, whether or not it exists.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

/// The tokenizer's fingerprint as text: 16 hexadecimal digits.
std::string fingerprint_text(const Tokenizer& tokenizer);

/// Removes files of other kinds of tokenizers. An earlier model may have left them in the folder, and they would be
/// read instead.
void remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep);

}  // namespace alibi::text
