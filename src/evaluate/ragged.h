// Inference of texts of different lengths without padding: they lie end to end in one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "alibi/embed.h"

namespace alibi::evaluation {

/// Calls use(index, states [tokens, d_model]) for each input, shortest first, with at most batch_tokens tokens at a
/// time unless one input has more. Throws Error that begins with [operation] and names the input if its ids are out of
/// range.
void each_hidden(const LanguageModel& model, std::span<const EncoderInput> inputs, int64_t batch_tokens,
                 const char* operation, const std::function<void(int64_t index, const Tensor& states)>& use);

}  // namespace alibi::evaluation
