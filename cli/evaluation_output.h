// An evaluation with a progress line, and as JSON; for the commands that evaluate.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "alibi/evaluate.h"

namespace alibi::cli {

Evaluation evaluate_with_progress(const LanguageModel& model, std::span<const int32_t> tokens, EvaluateOptions options);

/// The same object that `compare` writes into results.json. `bytes`: of the text behind the tokens.
nlohmann::ordered_json evaluation_json(const Evaluation& evaluation, int64_t bytes);

}  // namespace alibi::cli
