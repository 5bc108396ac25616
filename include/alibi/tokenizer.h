// Tokenizers: text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/export.h"

namespace alibi {

/// Ids are 0 .. vocab_size() - 1. A tokenizer does not change after it is made, so threads may share one.
class ALIBI_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "byte", "bpe", "unigram" or "words".
  virtual std::string_view kind() const = 0;
  virtual int32_t vocab_size() const = 0;
  /// Stands after each document, and before the first token of a stream.
  virtual int32_t end_of_text() const = 0;
  /// Whether end_of_text() also stands for text, each line feed: then encode() may yield it, and generation must.
  virtual bool end_of_text_ends_lines() const { return false; }
  /// The same number for tokenizers that give the same ids for the same text, also in another process.
  virtual uint64_t fingerprint() const = 0;

  /// Never yields end_of_text(), whatever the text says: a document cannot end itself; but see
  /// end_of_text_ends_lines().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// end_of_text() stands for no text, or for a line feed. Throws Error for an id that is out of range.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  /// Writes the files from which load(), and the Hugging Face tokenizers library, make this tokenizer again.
  virtual void save(const std::filesystem::path& folder) const = 0;
  /// Throws Error if the files are missing, damaged, or of a kind that cannot be read.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder);
};

/// A tokenizer that is yet to be made from the text that is trained on.
struct TokenizerChoice {
  std::string kind = "byte";  ///< "byte", "bpe", "unigram" or "words"
  int64_t vocab_size = 0;     ///< at most; 0: bpe and unigram 8192, words all
  int64_t min_count = 1;      ///< words: rarer ones are unknown
  std::string like = {};      ///< a model or data folder whose tokenizer is taken instead; empty: none
};

/// Makes it: learned from the texts (documents, each ended by its end), bpe and unigram from at most 16 MiB of them,
/// chosen by a fixed rule, so that the same texts in the same order give the same tokenizer. Throws UsageError for a
/// kind or a size that does not exist or is too small for the text, Error if the text is too small.
ALIBI_API std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice,
                                                          std::span<const std::string> texts);

/// Ids 0 to 255 are the bytes themselves, 256 ends a text. decode(encode(text)) is the text, whatever its bytes.
class ALIBI_API ByteTokenizer : public Tokenizer {
 public:
  std::string_view kind() const override { return "byte"; }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  void save(const std::filesystem::path& folder) const override;
};

}  // namespace alibi
