#include "report/gaps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/format.h"

namespace alibi::report {

void leave_gaps(LineChart& chart, double least, double most) {
  std::string gaps;
  for (Series& series : chart.series) {
    const auto drawn = [&](const ChartPoint& point) { return point.y >= least && point.y <= most; };
    const auto last = std::find_if(series.points.rbegin(), series.points.rend(), drawn);
    const auto line_end = last.base();  // points from here on have no value that is drawn
    size_t count = 0;
    std::string first;
    for (auto point = series.points.begin(); point != series.points.end(); ++point) {
      if (drawn(*point)) continue;
      const bool off = std::isfinite(point->y);
      const bool shown = line_end == series.points.begin() || (point >= line_end && !series.end_note.empty());
      if ((off || !shown) && count++ == 0) {
        first = fmt::format("{} at {} ({})", series.method, core::format_integer(std::llround(point->x)),
                            off ? fmt::format("{:.2e}", point->y) : "not a finite number");
      }
      point->y = NAN;
    }
    if (count == 0) continue;
    gaps += fmt::format("{}{}", gaps.empty() ? "Not drawn: " : "; ", first);
    if (count > 1) gaps += fmt::format(" and {} more", count - 1);
  }
  if (gaps.empty()) return;
  chart.gaps = gaps + ".";
  chart.description += " " + chart.gaps;
}

}  // namespace alibi::report
