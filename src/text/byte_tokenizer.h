// The byte tokenizer's files.
#pragma once

#include "formats/json.h"

namespace alibi::text {

/// Whether a Hugging Face tokenizer.json describes the byte tokenizer, so that it gives the same ids for the same text.
bool is_byte_tokenizer(const formats::JsonObject& json);

}  // namespace alibi::text
