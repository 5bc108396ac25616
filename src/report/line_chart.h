// A chart of lines with their names at their ends.
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
  double y = 0;         ///< not finite: the line has a break here
  std::string tooltip;  ///< may be empty
  Interval band = {};   ///< how sure y is, drawn as a band; NaN: not
};

struct Series {
  std::string method;  ///< its name, colour and marker
  std::vector<ChartPoint> points;
  std::string end_value;         ///< shown behind the name, e.g. "5.64"
  std::string end_note;          ///< not empty: the line ends in a cross with this text
  bool has_not_learned = false;  ///< drawn dashed, and a note says what that means
};

struct LineChart {
  std::string id;
  std::string title, subtitle;
  std::string description;  ///< what a reader who cannot see it should know
  std::string gaps = {};    ///< which points are not drawn, and why; empty: all are
  std::string x_label, y_label;
  Axis x, y;
  std::vector<Series> series;  ///< later ones lie on top
  std::optional<double> mark;  ///< a dashed vertical line at this x
  std::string mark_label;
  bool markers = true;
  double width = 500, height = 380;  ///< in pixels; `heading` and notes add to the height
};

/// Turns every y outside [least, most] into a gap, and says in `chart.gaps` which points have none: those out of range,
/// and those without a finite value where the chart itself does not show it (`Series::end_note`, "no value").
void leave_gaps(LineChart& chart, double least, double most);

/// The SVG element. `heading`: with title and subtitle drawn and a ground of its own, for a file that stands alone,
/// which also says whether there are gaps.
std::string draw(const LineChart& chart, const Theme& theme, bool heading);

}  // namespace alibi::report
