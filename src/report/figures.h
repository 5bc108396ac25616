// The figures of a comparison.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/line_chart.h"

namespace alibi::report {

struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  /// Numbers that are not finite change nothing.
  void add(double value);
  bool empty() const { return low > high; }
};
/// The range of the points.
AxisRange y_range(const std::vector<Series>& series);
/// The range of the points, widened for the bands, on each side by at most the factor `most`. The interval of two seeds
/// can be very wide.
AxisRange with_bands(const AxisRange& lines, const std::vector<Series>& series, double most);

/// Perplexity against evaluation length, with the training length marked (figure 1 of the paper).
LineChart perplexity_chart(const CompareResults& results, double width = LineChart().width);
/// The perplexity chart as a separate SVG file with a white background.
std::string figure_svg(const CompareResults& results);
/// The numbers of the perplexity chart for other plotting programs, such as PGF/TikZ. Each row is a length. The columns
/// are each method's perplexity and the ends of its 95 % interval, "nan" where a value is missing.
std::string figure_csv(const CompareResults& results);

}  // namespace alibi::report
