// Points of a chart that cannot be drawn.
#pragma once

#include "report/line_chart.h"

namespace alibi::report {

/// Turns every y outside [least, most] into a gap, and says in `chart.gaps` which points have none: those out of range,
/// and those without a finite value where the chart itself does not show it (`Series::end_note`, "no value").
void leave_gaps(LineChart& chart, double least, double most);

}  // namespace alibi::report
