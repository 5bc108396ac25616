// An evaluation with a progress line, and as JSON; for the commands that evaluate.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "alibi/evaluate.h"
#include "alibi/evaluate_stream.h"

namespace alibi::cli {

Evaluation evaluate_with_progress(const LanguageModel& model, std::span<const int32_t> tokens, EvaluateOptions options);

StreamEvaluation evaluate_stream_with_progress(const LanguageModel& model, std::span<const int32_t> tokens,
                                               const ContextOptions& context = {});
nlohmann::ordered_json stream_json(const StreamEvaluation& stream, int64_t bytes);

/// The same object that `compare` writes into results.json. `bytes`: of the text behind the tokens.
nlohmann::ordered_json evaluation_json(const Evaluation& evaluation, int64_t bytes);

}  // namespace alibi::cli
