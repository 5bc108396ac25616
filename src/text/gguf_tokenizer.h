// Tokenizers in GGUF files: lists under tokenizer.ggml.* and the name of a pre-tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

/// The merge of a vocabulary without merges, because llama.cpp wants at least one: it joins characters that byte-level
/// tokens never contain.
inline constexpr std::string_view kNoMerges = "\u4e00 \u4e01";

struct GgufVocabulary {
  std::string model = {};                ///< tokenizer.ggml.model: "gpt2", "bert", "llama" or "t5"
  std::string pre = {};                  ///< tokenizer.ggml.pre: for gpt2, see gguf_pre_tokenizers.h
  std::vector<std::string> tokens = {};  ///< by id
  std::vector<std::string> merges = {};  ///< "left right", for gpt2; at least one
  std::vector<float> scores = {};        ///< by id, for llama and t5
  std::vector<int32_t> types = {};       ///< tokenizer.ggml.token_type, by id; empty: all are normal
  int64_t bos = -1, eos = -1;            ///< ids; -1: none
  bool add_bos = false, add_eos = false;
  int64_t unknown = -1, separator = -1, classify = -1;  ///< for bert: [UNK], [SEP] and [CLS]
  bool add_space_prefix = true;                         ///< for llama and t5
  bool remove_extra_whitespaces = false;                ///< for llama and t5
  std::string precompiled_charsmap = {};                ///< for llama and t5
};

/// What the metadata of a GGUF file say of its tokenizer; absent if the file has none. A key that is missing means what
/// it means to llama.cpp. Throws Error that names the key.
std::optional<GgufVocabulary> read_gguf_vocabulary(const formats::JsonObject& metadata);

/// How a GGUF file says this tokenizer, for a model of at least as many ids: those above are unused tokens. Throws
/// UsageError that names what such a file cannot say.
GgufVocabulary gguf_vocabulary_of(const Tokenizer& tokenizer, int vocab_size);

/// The tokenizer of a GGUF file; null if it has none.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const formats::JsonObject& metadata, const std::string& where);
/// The tokenizer; save() writes it as a tokenizer.json or a model of SentencePiece. `where` names the file in errors.
/// Throws Error that names what cannot be read.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary, const std::string& where);

}  // namespace alibi::text
