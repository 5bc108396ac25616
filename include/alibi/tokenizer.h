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

/// How special tokens are treated: those that stand for no text, such as <s> and <|endoftext|>.
struct EncodeOptions {
  bool add_special_tokens = true;  ///< puts those around the text that the tokenizer's file asks for
  bool parse_special = true;       ///< those that the text spells out become their ids; else they are text
};
struct DecodeOptions {
  bool skip_special_tokens = true;
};
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;  ///< of each id, for models that read pairs of texts: usually 0, and 1 in the second
};

/// Ids are 0 .. vocab_size() - 1. A tokenizer does not change after it is made, so threads may share one.
class ALIBI_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "byte", "bpe", "unigram" or "words" of those that are made here. Of others the format and the algorithm:
  /// "hf-bpe", "hf-unigram", "hf-wordpiece", "hf-words" (tokenizer.json), "spm-bpe", "spm-unigram" (SentencePiece).
  virtual std::string_view kind() const = 0;
  virtual int32_t vocab_size() const = 0;
  /// Stands after each document, and before the first token of a stream.
  /// Throws Error if the tokenizer was read from a file that names no such token.
  virtual int32_t end_of_text() const = 0;
  /// Whether end_of_text() also stands for text, each line feed: then encode() may yield it, and generation must.
  virtual bool end_of_text_ends_lines() const { return false; }
  /// The same number for tokenizers that give the same ids for the same text, also in another process.
  virtual uint64_t fingerprint() const = 0;
  /// Whether a text may be cut behind any line feed, and encoded in parts: the ids are the same.
  virtual bool splits_at_lines() const { return true; }

  /// Never yields end_of_text(), whatever the text says: a document cannot end itself; but see
  /// end_of_text_ends_lines().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// end_of_text() stands for no text, or for a line feed. Throws Error for an id that is out of range.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  /// As the library does from which the file is: Hugging Face's tokenizers, or SentencePiece. Tokenizers that are made
  /// here have no special tokens that are added, and find none in text.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const {
    return encode_as(text, nullptr, options).ids;
  }
  /// Two texts for one input of a model. Throws UsageError for tokenizers that encode no pairs.
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const {
    return encode_as(first, &second, options);
  }
  /// As that library does; decode(ids) keeps the bytes of a character that is not whole, here they become U+FFFD.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
    return decode_as(ids, options);
  }

  /// Writes the files from which load(), and the Hugging Face tokenizers library, make this tokenizer again.
  virtual void save(const std::filesystem::path& folder) const = 0;
  /// `path` is a tokenizer.json of Hugging Face's library, a model of SentencePiece (*.model), or a folder with what
  /// save() wrote or one of these. docs/reference/text.md lists what may stand in a tokenizer.json.
  /// Throws Error if the files are missing, damaged, or of a kind that cannot be read.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);

 protected:
  virtual Encoding encode_as(std::string_view first, const std::string_view* second,
                             const EncodeOptions& options) const;
  virtual std::string decode_as(std::span<const int32_t> ids, const DecodeOptions& options) const;
};

/// A tokenizer that is yet to be made from the text that is trained on.
struct TokenizerChoice {
  std::string kind = "byte";  ///< "byte", "bpe", "unigram" or "words"
  int64_t vocab_size = 0;     ///< at most; 0: bpe and unigram 8192, words all
  int64_t min_count = 1;      ///< words: rarer ones are unknown
  std::string like = {};      ///< a path for Tokenizer::load(), whose tokenizer is taken instead; empty: none
};

/// Makes it: learned from the texts (documents, each ended by its end), bpe and unigram from at most 16 MiB of them,
/// chosen by a fixed rule, so that the same texts in the same order give the same tokenizer. Throws UsageError for a
/// kind or a size that does not exist or is too small for the text, Error if the text is too small.
ALIBI_API std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice,
                                                          std::span<const std::string> texts);

/// Ids 0 to 255 are the bytes themselves, 256 ends a text. decode(encode(text)) is the text, whatever its bytes.
class ALIBI_API ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::decode;
  using Tokenizer::encode;
  std::string_view kind() const override { return "byte"; }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  void save(const std::filesystem::path& folder) const override;
};

}  // namespace alibi
