// Drawing the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/language_model.h"
#include "core/random.h"

namespace alibi::generation {

/// Throws UsageError for an option that is out of its range.
void check_options(const GenerateOptions& options);

/// Throws NotFiniteError unless all are finite.
void check_logits(std::span<const float> logits);

/// Draws a token from float32 logits [vocab_size] by temperature, top_k, top_p and min_p. `draw` is the number of the
/// draw: a sample is a function of (seed, draw). The `banned` token (-1: none) is never drawn.
int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const core::Random& random,
                     uint64_t draw, int32_t banned);

/// The logits with the repetition penalty applied to the tokens of the text so far.
std::vector<float> penalized(std::span<const float> logits, const std::vector<bool>& seen, double penalty);

}  // namespace alibi::generation
