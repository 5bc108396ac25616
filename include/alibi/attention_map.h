// Attention weight of a trained model by distance, for each head.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/results.h"

namespace alibi {

/// Mean attention weight by distance over windows of `length` tokens, spread evenly over the text. The queries are
/// those of the last quarter of a window, so all of them see distances up to three quarters of the length; there are no
/// bins beyond. The softmax is computed in float64. Throws UsageError for a length below 8 or longer than the text, and
/// Error for an encoder.
ALIBI_API AttentionMap attention_map(const LanguageModel& model, std::span<const int32_t> tokens, int64_t length,
                                     int64_t windows = 4);

}  // namespace alibi
