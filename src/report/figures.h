// The figures of a comparison.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/line_chart.h"
#include "report/theme.h"

namespace alibi::report {

struct Bar {
  std::string method;
  double value = 0;   ///< no bar is drawn if this is not finite or not positive
  std::string label;  ///< the value as text
};

/// A small chart of horizontal bars from zero, one for each method.
struct BarChart {
  std::string id;
  std::string title;
  std::string unit;
  std::vector<Bar> bars;
};

/// Returns the SVG element, 340 pixels wide.
std::string draw(const BarChart& chart, const Theme& theme);

/// Number of seeds of the methods: "1", "5", or "3 to 5" if they differ.
std::string number_of_seeds(const CompareResults& results);
/// Perplexity against evaluation length, with the training length marked (figure 1 of the paper).
LineChart perplexity_chart(const CompareResults& results, double width = LineChart().width);
/// Training loss against tokens seen.
LineChart loss_chart(const CompareResults& results);
/// Loss by position of the token in its window: the early token curse (appendix B of the paper).
LineChart position_chart(const CompareResults& results);
/// Loss of the same tokens against the number of tokens of context.
LineChart context_chart(const CompareResults& results);
/// Speed of training and evaluation, and memory. Charts for which nothing was measured are left out.
std::vector<BarChart> cost_charts(const CompareResults& results);

/// The perplexity chart as a separate SVG file with a white background.
std::string figure_svg(const CompareResults& results);
/// The numbers of the perplexity chart for other plotting programs, such as PGF/TikZ. Each row is a length. The columns
/// are each method's perplexity and the ends of its 95 % interval, "nan" where a value is missing.
std::string figure_csv(const CompareResults& results);

}  // namespace alibi::report
