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
  std::string end_value;  ///< shown behind the name, e.g. "5.64"
  std::string end_note;   ///< not empty: the line cannot go on; it ends in a cross with this text
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
  double width = 720, height = 420;  ///< in pixels at full size; `heading` adds to the height
  /// For a phone: names stand in rows above the plot, and beside the ends of the lines their values alone.
  bool compact = false;
};

/// The same for 400 pixels, with another id; labels of ticks that would touch are left out, axes have short titles.
LineChart compacted(LineChart chart);

/// The SVG element. `heading`: with title and subtitle drawn and a ground of its own, for a file that stands alone,
/// which also says whether there are gaps.
std::string draw(const LineChart& chart, const Theme& theme, bool heading);

}  // namespace alibi::report
