// How well a table of token pairs predicts the held-out text: what a model must beat before it has learned anything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/evaluate.h"

namespace alibi::comparison {

/// Mean negative log-likelihood per token, in nats, of the scored parts of `held_out`, where each token is predicted
/// from the one before it. The pairs are counted on `train`, on at most 4 million tokens spread evenly over it, and
/// smoothed by absolute discounting with the frequencies of single tokens.
double bigram_nll(std::span<const int32_t> train, std::span<const int32_t> held_out, const std::vector<Segment>& scored,
                  int64_t vocab_size);

}  // namespace alibi::comparison
