// A small chart of horizontal bars from zero, one for each method.
#pragma once

#include <string>
#include <vector>

#include "report/theme.h"

namespace alibi::report {

struct Bar {
  std::string method;
  double value = 0;   ///< no bar is drawn if this is not finite or not positive
  std::string label;  ///< the value as text
};

struct BarChart {
  std::string id;
  std::string title;
  std::string unit;
  std::vector<Bar> bars;
};

/// Returns the SVG element, 340 pixels wide.
std::string draw(const BarChart& chart, const Theme& theme);

}  // namespace alibi::report
