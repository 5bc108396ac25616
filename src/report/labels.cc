#include "report/labels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace alibi::report {

bool crosses(const Box& box, SvgPoint a, SvgPoint b) {
  // Liang-Barsky clipping: [enter, leave] is the part of the line that lies inside all four sides.
  double enter = 0, leave = 1;
  const auto clip = [&](double direction, double distance) {
    if (direction == 0) return distance >= 0;
    const double t = distance / direction;
    if (direction < 0) enter = std::max(enter, t);
    if (direction > 0) leave = std::min(leave, t);
    return enter <= leave;
  };
  return clip(a.x - b.x, a.x - box.left) && clip(b.x - a.x, box.right - a.x) && clip(a.y - b.y, a.y - box.top) &&
         clip(b.y - a.y, box.bottom - a.y);
}

std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });

  // Pool adjacent violators: the labels of a block are `gap` apart, and the block lies at the mean of the heights that
  // they want.
  struct Block {
    double sum;  // sum of (wanted height - offset within the block)
    size_t count;
    double start() const { return sum / static_cast<double>(count); }
    double end(double step) const { return start() + step * static_cast<double>(count); }
  };
  std::vector<Block> blocks;
  for (const size_t i : order) {
    blocks.push_back({wanted[i], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].end(gap) > blocks.back().start()) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      into.sum += last.sum - gap * static_cast<double>(into.count * last.count);
      into.count += last.count;
    }
  }
  std::vector<double> placed;
  for (const Block& block : blocks) {
    for (size_t i = 0; i < block.count; ++i) placed.push_back(block.start() + gap * static_cast<double>(i));
  }
  // Move the labels into the range, first from its lower end, then from its upper end.
  for (size_t i = placed.size(); i-- > 0;) {
    const double limit = i + 1 == placed.size() ? high : placed[i + 1] - gap;
    placed[i] = std::min(placed[i], limit);
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    const double limit = i == 0 ? low : placed[i - 1] + gap;
    placed[i] = std::max(placed[i], limit);
  }
  std::vector<double> result(wanted.size());
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = placed[i];
  return result;
}

Box place_near(SvgPoint anchor, double width, double height, const Box& frame,
               const std::vector<std::vector<SvgPoint>>& lines, const std::vector<Box>& boxes) {
  const auto at = [&](double x, double y) {
    return Box{anchor.x + x, anchor.y + y - height / 2, anchor.x + x + width, anchor.y + y + height / 2};
  };
  const auto free = [&](const Box& place) {
    if (!frame.contains(place)) return false;
    constexpr double kMargin = 5;  // half of a marker
    const Box box{place.left - kMargin, place.top - kMargin, place.right + kMargin, place.bottom + kMargin};
    for (const Box& other : boxes) {
      if (box.overlaps(other)) return false;
    }
    for (const auto& line : lines) {
      if (line.size() == 1 && crosses(box, line[0], line[0])) return false;
      for (size_t i = 0; i + 1 < line.size(); ++i) {
        if (crosses(box, line[i], line[i + 1])) return false;
      }
    }
    return true;
  };
  const Box above = at(0, -height);
  Box best = above;
  double nearest = std::numeric_limits<double>::infinity();
  // Candidates right of the anchor, centred and left of it, at growing distances above and below.
  for (const double x : {10.0, 26.0, 60.0, 120.0, -width / 4, -width / 2, -0.75 * width, -width - 10}) {
    for (double y = 0; y <= frame.bottom - frame.top; y += 4) {
      for (const double sign : {-1.0, 1.0}) {
        const double distance = std::hypot(std::max(0.0, y - height / 2), std::max({0.0, x, -width - x}));
        if (distance >= nearest || !free(at(x, sign * y))) continue;
        nearest = distance;
        best = at(x, sign * y);
      }
    }
  }
  return best;
}

}  // namespace alibi::report
