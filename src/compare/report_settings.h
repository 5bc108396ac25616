// The settings of a comparison as text, for its report.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "alibi/compare.h"
#include "alibi/training_data.h"
#include "compare/held_out.h"
#include "compare/tune.h"

namespace alibi::comparison {

/// A sentence for each method with weights that have another learning rate than the others, such as the table of T5.
std::vector<std::string> rate_notes(const CompareOptions& options);

/// Names and values in the order of the report. `model` is the model of any of the methods.
std::vector<std::pair<std::string, std::string>> report_settings(
    const CompareOptions& options, const LanguageModelConfig& model, const TrainingData& data,
    const std::string& corpus_name, const HeldOutPlan& plan, const std::vector<Tuning>& tunings);

}  // namespace alibi::comparison
