// Loss of a table of token pairs on the held-out text. A model whose loss is not lower has not learned to use context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/evaluate.h"

namespace alibi::comparison {

/// Mean negative log-likelihood in nats per token of the scored parts of `held_out` (all, if none is given), where each
/// token is predicted from its predecessor. The pairs are counted on at most 4 million tokens, spread evenly over
/// `train`. They are smoothed by absolute discounting with the frequencies of single tokens.
double bigram_nll(std::span<const int32_t> train, std::span<const int32_t> held_out, const std::vector<Segment>& scored,
                  int64_t vocab_size);

}  // namespace alibi::comparison
