// alibi eval --scoring harness and llama: the perplexities of lm-evaluation-harness and of llama-perplexity.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "text/documents.h"

namespace alibi::cli {

/// Prints a line for each length and returns the elements of "eval".
nlohmann::ordered_json evaluate_as_harness(const LanguageModel& model, const std::vector<text::Document>& documents,
                                           const std::vector<int64_t>& lengths);
nlohmann::ordered_json evaluate_as_llama(const LanguageModel& model, const std::vector<text::Document>& documents,
                                         const std::vector<int64_t>& lengths);

}  // namespace alibi::cli
