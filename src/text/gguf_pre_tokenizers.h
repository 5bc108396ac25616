// The pre-tokenizers that GGUF files name: how a text is divided into words before they are merged.
#pragma once

#include <string>

#include "formats/json.h"

namespace alibi::text {

struct GgufPreTokenizer {
  formats::Json words = {};    ///< the pre_tokenizer of the tokenizer.json files from which such GGUF files are made
  bool nfc = false;            ///< they have the normalizer NFC
  bool ignore_merges = false;  ///< a word that is a token is not made of merges
  bool add_bos = false;        ///< for files that do not have tokenizer.ggml.add_bos_token
};

/// Null if the name is unknown.
const GgufPreTokenizer* find_gguf_pre_tokenizer(const std::string& name);

/// The names of pre-tokenizers that can be read.
std::string gguf_pre_tokenizers();

/// The name of the pre-tokenizer of a tokenizer.json; empty if there is none for it.
std::string gguf_pre_tokenizer_name(const formats::JsonObject& tokenizer_json);

/// A pre-tokenizer or decoder of tokenizer.json.
formats::Json byte_level(bool use_regex);

}  // namespace alibi::text
