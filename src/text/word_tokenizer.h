// Tokenizer for word-level corpora such as WikiText, with fairseq's vocabulary and ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "alibi/tokenizer.h"

namespace alibi::text {

/// A word and its count in the training text.
using WordCount = std::pair<std::string, int64_t>;

/// Words are separated by Unicode whitespace, as in Python's str.split. Each line feed is a `</s>`, which also ends
/// documents. Words outside the vocabulary become `<unk>`. Ids: 0 `<s>`, 1 `<pad>`, 2 `</s>`, 3 `<unk>`, then the
/// words. decode(encode(text)) has single spaces and no spaces at the ends of lines.
class WordTokenizer : public Tokenizer {
 public:
  /// Takes the words in the order of their ids. Throws Error if a word is empty, a duplicate, contains whitespace, or
  /// is one of the four special words.
  explicit WordTokenizer(std::vector<WordCount> words);
  /// Reads the vocabulary file. Throws Error that names the line.
  static std::shared_ptr<const WordTokenizer> load(const std::filesystem::path& file);

  std::string_view kind() const override { return "words"; }
  int32_t vocab_size() const override { return kSpecials + static_cast<int32_t>(words_.size()); }
  int32_t end_of_text() const override { return 2; }
  bool end_of_text_ends_lines() const override { return true; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const override;

  static constexpr int32_t kSpecials = 4;

  std::string file_text() const;

  std::vector<WordCount> words_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into words_, and the text `<unk>`
};

/// Counts the words of text, for a vocabulary.
class WordCounter {
 public:
  void add(std::string_view text);
  void add(const WordCounter& other);
  /// The words by falling count; words of equal count are sorted by their bytes. Each has a count of at least
  /// `min_count`. With a `vocab_size` above 0, only the words that fit are taken. Placeholders follow until the size is
  /// a multiple of 8.
  std::vector<WordCount> vocabulary(int64_t vocab_size, int64_t min_count) const;

 private:
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace alibi::text
