// Inference of texts of different lengths without padding: they lie end to end in one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "alibi/embed.h"

namespace alibi::evaluation {

/// Some neighbouring tokens of an input.
struct States {
  int64_t index = 0;  ///< of the input
  int64_t first = 0;  ///< first token
  int64_t total = 0;  ///< tokens of the input
  Tensor rows;        ///< [n, d_model]
};

/// What a call of each_hidden() may do.
struct RaggedOptions {
  const char* operation = "embed";  ///< messages begin with it
  int64_t batch_tokens = 4096;      ///< inputs are computed together up to this number of tokens
  /// Called with the numbers of tokens that are done, and of all.
  std::function<void(int64_t, int64_t)> on_progress = {};
};

/// Inputs of more than this times batch_tokens tokens are computed layer by layer, if the model allows it
/// (model/long_text.h).
inline constexpr int64_t long_input = 4;

/// Calls use(states) for each input, shortest first. Inputs with many tokens come in several parts, in order. Throws
/// Error that names the input if its ids are out of range.
void each_hidden(const LanguageModel& model, std::span<const EncoderInput> inputs, const RaggedOptions& options,
                 const std::function<void(const States& states)>& use);

}  // namespace alibi::evaluation
