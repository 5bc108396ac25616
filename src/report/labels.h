// Placement of text so that it covers neither lines nor other text.
#pragma once

#include <vector>

#include "report/svg.h"

namespace alibi::report {

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;

  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool contains(const Box& other) const {
    return left <= other.left && other.right <= right && top <= other.top && other.bottom <= bottom;
  }
};

/// Whether the line from a to b touches the box.
bool crosses(const Box& box, SvgPoint a, SvgPoint b);

/// Moves heights so that neighbours are at least `gap` apart and all lie within [low, high], if there is room. The sum
/// of squared moves is minimal. Equal heights keep their order.
std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high);

/// Returns the nearest box of the given size to `anchor` that lies inside `frame` and touches none of the lines and
/// boxes. If there is none, returns the box straight above the anchor.
Box place_near(SvgPoint anchor, double width, double height, const Box& frame,
               const std::vector<std::vector<SvgPoint>>& lines, const std::vector<Box>& boxes);

}  // namespace alibi::report
