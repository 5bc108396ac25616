// Evaluation with a progress line, and its results as JSON, for the commands that evaluate.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "alibi/evaluate.h"
#include "alibi/evaluate_stream.h"
#include "ranks/group.h"

namespace alibi::cli {

/// With a group, all of its ranks call it and share the work.
Evaluation evaluate_with_progress(const LanguageModel& model, std::span<const int32_t> tokens, EvaluateOptions options,
                                  ranks::Group* group = nullptr);

/// The share of the bytes of `tokens` tokens that belongs to the scored ones: all of them, or the masked ones of an
/// encoder.
int64_t scored_bytes(const Evaluation& evaluation, int64_t bytes, int64_t tokens);
StreamEvaluation evaluate_stream_with_progress(const LanguageModel& model, std::span<const int32_t> tokens,
                                               const ContextOptions& context = {},
                                               const std::vector<Segment>& segments = {});
nlohmann::ordered_json stream_json(const StreamEvaluation& stream, int64_t bytes);

/// The object that `compare` also writes into results.json. `bytes` is the size of the text that the tokens represent.
nlohmann::ordered_json evaluation_json(const Evaluation& evaluation, int64_t bytes);

}  // namespace alibi::cli
