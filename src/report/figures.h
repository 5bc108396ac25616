// The figures of a comparison.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/bar_chart.h"
#include "report/line_chart.h"

namespace alibi::report {

/// Number of seeds of the methods: "1", "5", or "3 to 5" if they differ.
std::string number_of_seeds(const CompareResults& results);

/// The central figure: perplexity against evaluation length, the training length marked (paper figure 1).
LineChart perplexity_chart(const CompareResults& results, double width = LineChart().width);
/// Training loss against tokens seen.
LineChart loss_chart(const CompareResults& results);
/// Loss by the position of the token in its window: the early token curse (paper appendix B).
LineChart position_chart(const CompareResults& results);
/// Loss of the same tokens against the length of the text before them.
LineChart context_chart(const CompareResults& results);
/// Speed of training and evaluation, and memory. Charts for which nothing was measured are left out.
std::vector<BarChart> cost_charts(const CompareResults& results);

/// The central figure as a file of its own, on white.
std::string figure_svg(const CompareResults& results);
/// Its numbers, for other programs' figures (PGF/TikZ reads it): a line for each length, a column for each method's
/// perplexity and for the ends of its 95 % interval; "nan" where there is none.
std::string figure_csv(const CompareResults& results);

}  // namespace alibi::report
