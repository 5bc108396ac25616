// Tokenizers: text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/export.h"

namespace alibi {

/// Treatment of special tokens: tokens such as `<s>` and `<|endoftext|>`, which mark places and stand for no text.
struct EncodeOptions {
  bool add_special_tokens = true;  ///< add the special tokens that the tokenizer's file prescribes around a text
  bool parse_special = true;       ///< special tokens spelled out in the text become their ids; false: they are text
};
struct DecodeOptions {
  bool skip_special_tokens = true;
};
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;  ///< segment of each id, for models that read pairs of texts: usually 0 and 1
};

/// Ids are 0 .. vocab_size() - 1. A tokenizer does not change after it is made, so threads may share one.
class ALIBI_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "byte", "bpe", "unigram" or "words" for tokenizers made by alibi. For others, the format and the algorithm:
  /// "hf-bpe", "hf-unigram", "hf-wordpiece", "hf-words" (tokenizer.json), "spm-bpe", "spm-unigram" (SentencePiece).
  virtual std::string_view kind() const = 0;
  virtual int32_t vocab_size() const = 0;
  /// Id of the token after each document and before the first token of a stream.
  /// Throws Error if the tokenizer was read from a file that names no such token.
  virtual int32_t end_of_text() const = 0;
  /// Id of the token before each text (BOS), if the tokenizer's files name one. Tokenizers made by alibi have none but
  /// end_of_text().
  virtual std::optional<int32_t> begin_of_text() const { return std::nullopt; }
  /// Whether end_of_text() also stands for each line feed, as in WikiText-103. encode() then returns it for line feeds,
  /// and generation must be able to draw it.
  virtual bool end_of_text_ends_lines() const { return false; }
  /// A hash of the tokenizer: equal for two tokenizers that encode every text to the same ids, also in another process.
  virtual uint64_t fingerprint() const = 0;
  /// Whether a text may be cut after any line feed and encoded in parts, with the same ids.
  virtual bool splits_at_lines() const { return true; }

  /// Never returns end_of_text(), even if the text spells it out, so a document cannot end itself. The exception is
  /// end_of_text_ends_lines().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// end_of_text() is decoded to no text, or to a line feed. An id of at least vocab_size() is decoded to no text: the
  /// table of a model may have more rows than its tokenizer has tokens. Throws Error for an id below 0.
  std::string decode(std::span<const int32_t> ids) const { return decode_any(ids, nullptr); }

  /// The ids with which a model continues `text`: never none. Tokenizers made by alibi put end_of_text() before it, as
  /// in training. For others the files decide, as in Hugging Face's transformers: add_bos_token and add_eos_token of
  /// tokenizer_config.json, else the special tokens of tokenizer.json, else none. Special tokens in the text count.
  virtual std::vector<int32_t> encode_prompt(std::string_view text) const;

  /// Encodes as the reference library of the file does: Hugging Face's tokenizers, or SentencePiece. Tokenizers made by
  /// alibi add no special tokens and find none in the text.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const {
    return encode_as(text, nullptr, options).ids;
  }
  /// Two texts for one input of a model. Throws UsageError for tokenizers that encode no pairs.
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const {
    return encode_as(first, &second, options);
  }
  /// Decodes as the reference library does. The bytes of an incomplete character become U+FFFD; decode(ids) keeps them.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
    return decode_any(ids, &options);
  }

  /// Writes files that load() and the Hugging Face tokenizers library can read.
  virtual void save(const std::filesystem::path& folder) const = 0;
  /// `path` is a tokenizer.json of Hugging Face's library, a SentencePiece model (*.model), a GGUF file (*.gguf), or a
  /// folder that holds one of the first two or the files of save(). docs/reference/text.md lists the supported parts of
  /// tokenizer.json. Throws Error if the files are missing, damaged, or of a kind that cannot be read.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path);

 protected:
  virtual Encoding encode_as(std::string_view first, const std::string_view* second,
                             const EncodeOptions& options) const;
  /// All ids are 0 .. vocab_size() - 1. Without options, as decode(ids); tokenizers made by alibi have no options.
  virtual std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const = 0;

 private:
  std::string decode_any(std::span<const int32_t> ids, const DecodeOptions* options) const;
};

/// Settings of a tokenizer that make_tokenizer() learns from the training text.
struct TokenizerChoice {
  std::string kind = "byte";  ///< "byte", "bpe", "unigram" or "words"
  int64_t vocab_size = 0;     ///< maximum size; 0: 8192 for bpe and unigram, every word for words
  int64_t min_count = 1;      ///< words: words that occur less often become the unknown token
  std::string like = {};      ///< if not empty, use the tokenizer that Tokenizer::load() reads from this path
};

/// Makes a tokenizer from the texts, each of which is a document. bpe and unigram learn from a sample of at most 16
/// MiB, which a fixed rule selects: the same texts in the same order give the same tokenizer. Throws UsageError for an
/// unknown kind or an invalid size, and Error if the text is too small for the size.
ALIBI_API std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice,
                                                          std::span<const std::string> texts);

/// Ids 0 to 255 are the bytes, and 256 is the end of text. decode(encode(text)) == text for any bytes.
class ALIBI_API ByteTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string_view kind() const override { return "byte"; }
  int32_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  void save(const std::filesystem::path& folder) const override;

 protected:
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const override;
};

}  // namespace alibi
