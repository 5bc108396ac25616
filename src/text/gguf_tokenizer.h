// Tokenizers in GGUF files: lists under tokenizer.ggml.* and the name of a pre-tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "alibi/tokenizer.h"

namespace alibi::text {

struct GgufVocabulary {
  std::string model = {};                ///< tokenizer.ggml.model: "gpt2", "bert" or "llama"
  std::string pre = {};                  ///< tokenizer.ggml.pre: for gpt2, see gguf_pre_tokenizers()
  std::vector<std::string> tokens = {};  ///< by id
  std::vector<std::string> merges = {};  ///< "left right", for gpt2
  std::vector<float> scores = {};        ///< by id, for llama
  std::vector<int32_t> types = {};       ///< tokenizer.ggml.token_type, by id; empty if all are normal
  int64_t bos = -1, eos = -1;            ///< ids; -1 for none
  bool add_bos = false, add_eos = false;
  int64_t unknown = -1, separator = -1, classify = -1;  ///< for bert: [UNK], [SEP] and [CLS]
  bool add_space_prefix = true;                         ///< for llama
  bool remove_extra_whitespaces = false;                ///< for llama
  std::string precompiled_charsmap = {};                ///< for llama
};

/// The supported names of pre-tokenizers for gpt2.
std::string gguf_pre_tokenizers();

/// Creates the tokenizer. save() writes it as a tokenizer.json or a SentencePiece model. `where` names the file in
/// errors. Throws Error that names the unsupported part.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary, const std::string& where);

}  // namespace alibi::text
