// Drawing the next token.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/language_model.h"
#include "core/random.h"

namespace alibi {

/// Draws a token from float32 logits [vocab_size] by temperature, top_k and top_p; `draw` counts the draws, so that a
/// sample is a function of (seed, draw). A `banned` token (-1: none) is never drawn.
int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const Random& random, uint64_t draw,
                     int32_t banned);

}  // namespace alibi
