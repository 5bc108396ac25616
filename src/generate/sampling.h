// Sampling of the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/language_model.h"
#include "core/random.h"

namespace alibi::generation {

/// Throws UsageError if an option is out of range.
void check_options(const GenerateOptions& options);

/// Throws NotFiniteError unless all logits are finite.
void check_logits(std::span<const float> logits);

/// Draws a token from float32 logits [vocab_size] with temperature, top_k, top_p and min_p. `draw` is the index of the
/// draw; a sample is a function of (seed, draw). The token `banned` is never drawn; -1 bans no token.
int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const core::Random& random,
                     uint64_t draw, int32_t banned);

/// Returns the logits with the repetition penalty applied to the tokens that the text contains.
std::vector<float> penalized(std::span<const float> logits, const std::vector<bool>& seen, double penalty);

}  // namespace alibi::generation
