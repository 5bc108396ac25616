// Tokenizers in GGUF files: lists under tokenizer.ggml.* and the name of a pre-tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "alibi/tokenizer.h"
#include "formats/json.h"

namespace alibi::text {

/// tokenizer.ggml.token_type; the numbers of SentencePiece are the same.
enum GgufTokenType : int32_t {
  kNormalToken = 1,
  kUnknownToken = 2,
  kControlToken = 3,
  kUserToken = 4,
  kUnusedToken = 5
};

struct GgufVocabulary {
  std::string model = {};                ///< tokenizer.ggml.model: "gpt2", "bert", "llama" or "t5"
  std::string pre = {};                  ///< tokenizer.ggml.pre: for gpt2, see gguf_pre_tokenizers()
  std::vector<std::string> tokens = {};  ///< by id
  std::vector<std::string> merges = {};  ///< "left right", for gpt2
  std::vector<float> scores = {};        ///< by id, for llama and t5
  std::vector<int32_t> types = {};       ///< tokenizer.ggml.token_type, by id; empty if all are normal
  int64_t bos = -1, eos = -1;            ///< ids; -1 for none
  bool add_bos = false, add_eos = false;
  int64_t unknown = -1, separator = -1, classify = -1;  ///< for bert: [UNK], [SEP] and [CLS]
  bool add_space_prefix = true;                         ///< for llama and t5
  bool remove_extra_whitespaces = false;                ///< for llama and t5
  std::string precompiled_charsmap = {};                ///< for llama and t5
};

/// Reads the tokenizer's keys from the metadata of a GGUF file. Absent if the file has no tokenizer. Missing keys have
/// llama.cpp's defaults. Throws Error that names the key.
std::optional<GgufVocabulary> read_gguf_vocabulary(const formats::JsonObject& metadata);

/// Describes a tokenizer for a GGUF file, with unused tokens up to `vocab_size`. Throws UsageError that names what such
/// a file cannot express.
GgufVocabulary gguf_vocabulary_of(const Tokenizer& tokenizer, int vocab_size);

/// The name of the pre-tokenizer of a tokenizer.json; empty if it has no name.
std::string gguf_pre_tokenizer_name(const formats::JsonObject& tokenizer_json);

/// The supported names of pre-tokenizers for gpt2.
std::string gguf_pre_tokenizers();

/// Creates the tokenizer of a GGUF file. Returns null if the file has none.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const formats::JsonObject& metadata, const std::string& where);
/// Creates the tokenizer. save() writes it as a tokenizer.json or a SentencePiece model. `where` names the file in
/// errors. Throws Error that names the unsupported part.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary, const std::string& where);

}  // namespace alibi::text
