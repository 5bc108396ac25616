// Tokenizers of other programs: a tokenizer.json of Hugging Face's library, or a SentencePiece model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tokenizer.h"
#include "text/tokenizers/engine.h"

namespace alibi::text {

/// The result of load_...() with the bytes of its file, which save() writes unchanged.
class PretrainedTokenizer final : public Tokenizer {
 public:
  struct Source {
    std::string name;    ///< name of the file in a folder: tokenizer.json or tokenizer.model
    std::string bytes;   ///< content of the file
    std::string config;  ///< content of the tokenizer_config.json in the same folder; empty if there is none
    std::string where;   ///< name of the file for errors
  };
  /// Throws Error if the config names an end-of-text token that does not exist.
  PretrainedTokenizer(std::unique_ptr<const tokenizers::Engine> engine, Source source);

  std::string_view kind() const override { return kind_; }
  int32_t vocab_size() const override { return engine_->end(); }
  int32_t end_of_text() const override;
  std::optional<int32_t> begin_of_text() const override { return begin_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  bool splits_at_lines() const override { return false; }
  /// Special tokens in the text are treated as text. Invalid UTF-8 becomes U+FFFD.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_prompt(std::string_view text) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  Encoding encode_as(std::string_view first, const std::string_view* second,
                     const EncodeOptions& options) const override;
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const override {
    return engine_->decode(ids, options == nullptr || options->skip_special_tokens, options == nullptr);
  }

  std::unique_ptr<const tokenizers::Engine> engine_;
  Source source_;
  std::string kind_;
  std::optional<int32_t> end_of_text_;
  std::string end_token_;
  uint64_t fingerprint_;
  std::optional<bool> adds_begin_, adds_end_;  ///< what tokenizer_config.json says of prompts
  std::optional<int32_t> begin_;               ///< its bos_token
};

/// Loads a tokenizer.json. That of ByteTokenizer gives a ByteTokenizer. Throws Error that names the file.
std::shared_ptr<const Tokenizer> load_tokenizer_json(const std::filesystem::path& file);
/// The same from the content of a file; `where` names it in errors.
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string json, std::string config, const std::string& where);

/// Loads a SentencePiece model. Those of train_sentencepiece() give a SentencePieceTokenizer.
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& file);
std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string model, std::string config,
                                                              const std::string& where);

}  // namespace alibi::text
