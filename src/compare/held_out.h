// Parts of the held-out text, which may be known by its tokens alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "text/training_data.h"

namespace alibi {

/// Bytes of held-out text behind the first tokens: what they decode to, in proportion where decoding does not give the
/// text back (`words`).
int64_t bytes_of_prefix(const TrainingData& data, size_t tokens);

/// Text of at most `count` tokens of the first document, in whole characters.
std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count);

}  // namespace alibi
