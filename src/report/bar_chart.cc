#include "report/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/svg.h"

namespace alibi::report {

std::string draw(const BarChart& chart, const Theme& theme) {
  constexpr double kWidth = 340, kTop = 34, kRow = 25, kBar = 15;
  double most = 0, name_width = 0, label_width = 0;
  std::string description = chart.unit + ":";
  for (const Bar& bar : chart.bars) {
    if (std::isfinite(bar.value)) most = std::max(most, bar.value);
    name_width = std::max(name_width, text_width(bar.method, 13));
    label_width = std::max(label_width, text_width(bar.label, 12));
    description += fmt::format(" {} {};", bar.method, bar.label);
  }
  if (description.back() == ';') description.back() = '.';
  Svg svg(chart.id, kWidth, kTop + kRow * static_cast<double>(chart.bars.size()) + 4, chart.title, description);
  svg.text({0, 15}, chart.title, {theme.ink, 13, Anchor::start, true, chart.unit, theme.muted});
  const double left = name_width + 10, room = kWidth - left - label_width - 10;
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    const double middle = kTop + kRow * (static_cast<double>(i) + 0.5) - 4;
    const bool drawn = std::isfinite(bar.value) && bar.value > 0;
    const double width = drawn ? std::max(1.0, room * (bar.value / most)) : 0;
    svg.text({left - 10, middle + 4.5}, bar.method, {theme.text(bar.method), 13, Anchor::end});
    if (drawn) svg.rectangle({left, middle - kBar / 2}, width, kBar, theme.line(bar.method), 2);
    svg.text({left + width + (drawn ? 7 : 0), middle + 4}, bar.label, {drawn ? theme.ink : theme.muted, 12});
  }
  return std::move(svg).finish();
}

}  // namespace alibi::report
