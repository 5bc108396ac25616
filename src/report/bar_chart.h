// A small chart of horizontal bars from zero, one for each method.
#pragma once

#include <string>
#include <vector>

#include "report/theme.h"

namespace alibi::report {

struct Bar {
  std::string method;
  double value = 0;   ///< not finite or not positive: no bar
  std::string label;  ///< the value as text
};

struct BarChart {
  std::string id;
  std::string title;
  std::string unit;
  std::vector<Bar> bars;
};

/// The SVG element, 340 wide.
std::string draw(const BarChart& chart, const Theme& theme);

}  // namespace alibi::report
