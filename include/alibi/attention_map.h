// Where a trained model looks: attention weight against distance, head by head.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/results.h"

namespace alibi {

/// Mean attention weight by distance over windows of `length` tokens, spread evenly over the text. The queries are
/// those of the last quarter of a window, so that all of them see the distances up to three quarters of it; beyond,
/// there is no bin. Softmax in float64 of what attention is given. Throws UsageError for a length below 8 or above the
/// text, Error for an encoder.
ALIBI_API AttentionMap attention_map(const LanguageModel& model, std::span<const int32_t> tokens, int64_t length,
                                     int64_t windows = 4);

}  // namespace alibi
