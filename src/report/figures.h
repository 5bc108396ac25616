// The figures of a comparison.
#pragma once

#include <string>

#include "alibi/results.h"
#include "report/line_chart.h"

namespace alibi::report {

/// Perplexity against evaluation length, with the training length marked (figure 1 of the paper).
LineChart perplexity_chart(const CompareResults& results, double width = LineChart().width);
/// The perplexity chart as a separate SVG file with a white background.
std::string figure_svg(const CompareResults& results);
/// The numbers of the perplexity chart for other plotting programs, such as PGF/TikZ. Each row is a length. The columns
/// are each method's perplexity and the ends of its 95 % interval, "nan" where a value is missing.
std::string figure_csv(const CompareResults& results);

}  // namespace alibi::report
