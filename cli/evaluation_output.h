// An evaluation with a progress line, and as JSON; for the commands that evaluate.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "alibi/evaluate.h"
#include "alibi/evaluate_stream.h"

namespace alibi::cli {

Evaluation evaluate_with_progress(const LanguageModel& model, std::span<const int32_t> tokens, EvaluateOptions options);

/// The part of a text's bytes that belongs to what was scored of its tokens: all, or of an encoder the masked ones.
int64_t scored_bytes(const Evaluation& evaluation, int64_t bytes, size_t tokens);
StreamEvaluation evaluate_stream_with_progress(const LanguageModel& model, std::span<const int32_t> tokens,
                                               const ContextOptions& context = {});
nlohmann::ordered_json stream_json(const StreamEvaluation& stream, int64_t bytes);

/// The same object that `compare` writes into results.json. `bytes`: of the text behind the tokens.
nlohmann::ordered_json evaluation_json(const Evaluation& evaluation, int64_t bytes);

}  // namespace alibi::cli
