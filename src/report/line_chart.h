// A line chart with the name of each line at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/axis.h"
#include "report/theme.h"

namespace alibi::report {

struct ChartPoint {
  double x = 0;
  double y = 0;          ///< the line has a break where this is not finite
  std::string tooltip;   ///< may be empty
  Interval band = {};    ///< interval of y, drawn as a band; NaN for no band
  Interval x_band = {};  ///< interval of x; drawn as a bar, as that of y is then
};

struct Series {
  std::string method;  ///< gives the name, colour and marker
  std::vector<ChartPoint> points;
  std::string end_value;         ///< shown after the name, e.g. "5.64"
  std::string end_note;          ///< if not empty, the line ends in a cross with this text
  bool has_not_learned = false;  ///< drawn dashed, and a note explains the dashes
};

struct LineChart {
  std::string id;
  std::string title, subtitle;
  std::string description;  ///< description for readers who cannot see the figure
  std::string gaps = {};    ///< which points are not drawn, and why; empty if all are drawn
  std::string x_label, y_label;
  Axis x, y;
  std::vector<Series> series;  ///< later series are drawn on top
  std::optional<double> mark;  ///< x of a dashed vertical line
  std::string mark_label;
  std::optional<double> level;  ///< y of a dashed horizontal line
  std::string level_label;
  bool markers = true;
  double width = 500, height = 380;  ///< in pixels; the heading and the notes add to the height
};

/// Replaces every y outside [least, most] by a gap, and lists the missing points in `chart.gaps`: those out of range,
/// and those without a finite value unless the chart itself shows that (`Series::end_note`, "no value").
void leave_gaps(LineChart& chart, double least, double most);

/// Returns the SVG element. With `heading` it has a title, a subtitle, a background and a note about gaps, for a
/// separate file.
std::string draw(const LineChart& chart, const Theme& theme, bool heading);

}  // namespace alibi::report
