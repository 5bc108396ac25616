// The map of methods: the perplexity of a model at the longest length, and the largest distance at which it answers.
#pragma once

#include <optional>

#include "alibi/results.h"
#include "report/line_chart.h"

namespace alibi::report {

/// A point for each method that was trained on text and tasks. The task is recall, or else the first one. Nothing if no
/// method has both numbers.
std::optional<LineChart> map_chart(const CompareResults& results);

}  // namespace alibi::report
