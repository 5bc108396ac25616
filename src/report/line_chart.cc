#include "report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "report/labels.h"
#include "report/svg.h"

namespace alibi::report {

namespace {

constexpr double kTickSize = 12;
constexpr double kLabelSize = 13;
constexpr double kLabelGap = 17;  ///< between the base lines of two labels

std::string end_text(const Series& series, bool compact) {
  if (compact) return series.end_value;
  return series.end_value.empty() ? series.method : series.method + " " + series.end_value;
}

/// One drawing of one chart: places everything in pixels.
class Drawing {
 public:
  Drawing(const LineChart& chart, const Theme& theme, bool heading)
      : chart_(chart),
        theme_(theme),
        heading_(heading),
        bottom_(chart.height + (heading ? 56 : 0)),
        height_(bottom_ + (heading && !chart.gaps.empty() ? 18 : 0)),
        svg_(chart.id, chart.width, height_, chart.title, chart.description) {
    place_frame();
    for (const Series& series : chart.series) lines_.push_back(runs(series));
  }

  std::string finish() && {
    if (heading_) {
      svg_.rectangle({0, 0}, chart_.width, height_, theme_.ground);
      svg_.text({20, 32}, chart_.title, {theme_.ink, chart_.compact ? 15.0 : 18.0, Anchor::start, true});
      if (!chart_.compact) svg_.text({20, 53}, chart_.subtitle, {theme_.muted, 13});
    }
    if (chart_.compact) draw_legend();
    draw_axes();
    draw_mark();
    draw_bands();
    draw_lines();
    draw_end_labels();
    draw_notes();
    return std::move(svg_).finish();
  }

 private:
  using Runs = std::vector<std::vector<SvgPoint>>;

  void place_frame() {
    double tick_width = 0, label_width = 0;
    for (const Tick& tick : chart_.y.ticks) tick_width = std::max(tick_width, text_width(tick.label, kTickSize));
    for (const Series& series : chart_.series) {
      label_width = std::max(label_width, text_width(end_text(series, chart_.compact), kLabelSize, true));
      for (const ChartPoint& point : series.points) {
        if (std::isfinite(point.y)) last_x_ = std::max(last_x_, point.x);
      }
    }
    const bool two_rows = std::any_of(chart_.x.ticks.begin(), chart_.x.ticks.end(),
                                      [](const Tick& tick) { return !tick.second.empty(); });
    legend_top_ = heading_ ? 52 : 12;
    const double above = heading_ ? 110 : chart_.mark ? 48 : 34;
    const double top = chart_.compact ? legend_top_ + place_legend() + 36 : above;
    frame_ = {tick_width + (heading_ && !chart_.compact ? 32 : 14), top,
              chart_.width - label_width - (chart_.compact ? 26 : 40), bottom_ - (two_rows ? 62 : 48)};
  }

  /// Names in rows; returns their height.
  double place_legend() {
    double x = legend_left_, y = 0;
    for (const Series& series : chart_.series) {
      const double width = 18 + text_width(series.method, kLabelSize, true) + 14;
      if (x > legend_left_ && x + width > chart_.width) {
        x = legend_left_;
        y += kLabelGap + 3;
      }
      legend_.push_back({x, legend_top_ + y});
      x += width;
    }
    return y + kLabelGap;
  }

  void draw_legend() {
    for (size_t i = 0; i < legend_.size(); ++i) {
      const Series& series = chart_.series[i];
      const SvgPoint at = legend_[i];
      svg_.line({at.x, at.y}, {at.x + 14, at.y}, {theme_.line(series.method), 2.2, ""});
      svg_.marker(style_of(series.method).marker, {at.x + 7, at.y}, 8.5, theme_.line(series.method), theme_.ground);
      svg_.text({at.x + 19, at.y + 4.5}, series.method, {theme_.text(series.method), kLabelSize, Anchor::start, true});
    }
  }

  SvgPoint place(double x, double y) const {
    return {frame_.left + std::clamp(chart_.x.fraction(x), 0.0, 1.0) * (frame_.right - frame_.left),
            frame_.bottom - std::clamp(chart_.y.fraction(y), 0.0, 1.0) * (frame_.bottom - frame_.top)};
  }

  /// The unbroken parts of a line.
  Runs runs(const Series& series) const {
    Runs parts(1);
    for (const ChartPoint& point : series.points) {
      if (std::isfinite(point.y)) {
        parts.back().push_back(place(point.x, point.y));
      } else if (!parts.back().empty()) {
        parts.emplace_back();
      }
    }
    if (parts.back().empty()) parts.pop_back();
    return parts;
  }

  /// The last point with a number, if there is one.
  static const ChartPoint* last_point(const Series& series) {
    for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
      if (std::isfinite(point->y)) return &*point;
    }
    return nullptr;
  }

  /// Its label stands beside its end within the frame, not in the column at the right.
  bool ends_early(const Series& series) const {
    const ChartPoint* last = last_point(series);
    return last != nullptr &&
           (!series.end_note.empty() || chart_.x.fraction(last->x) < chart_.x.fraction(last_x_) - 0.02);
  }

  void draw_axes() {
    for (const Tick& tick : chart_.y.ticks) {
      const double y = place(chart_.x.low, tick.value).y;
      svg_.line({frame_.left, y}, {frame_.right, y}, {theme_.grid, 1, ""});
      svg_.text({frame_.left - 8, y + 4}, tick.label, {theme_.muted, kTickSize, Anchor::end});
    }
    svg_.line({frame_.left, frame_.bottom}, {frame_.right, frame_.bottom}, {theme_.muted, 1, ""});
    for (const Tick& tick : chart_.x.ticks) {
      const double x = place(tick.value, chart_.y.low).x;
      svg_.line({x, frame_.bottom}, {x, frame_.bottom + (tick.label.empty() ? 3.0 : 5.0)}, {theme_.muted, 1, ""});
      if (tick.label.empty()) continue;
      svg_.text({x, frame_.bottom + 18}, tick.label, {theme_.ink, kTickSize, Anchor::middle});
      if (!tick.second.empty()) {
        svg_.text({x, frame_.bottom + 32}, tick.second, {theme_.muted, 11, Anchor::middle});
      }
    }
    svg_.text({heading_ ? (chart_.compact ? 8.0 : 20.0) : 0.0, frame_.top - (chart_.mark ? 30 : 14)}, chart_.y_label,
              {theme_.muted, kTickSize});
    svg_.text({(frame_.left + frame_.right) / 2, bottom_ - 8}, chart_.x_label,
              {theme_.muted, kTickSize, Anchor::middle});
    if (height_ > bottom_) {
      svg_.text({chart_.compact ? 8.0 : 20.0, height_ - 8}, "Some values are not drawn: figure.csv has them",
                {theme_.muted, kTickSize});
    }
  }

  void draw_mark() {
    if (!chart_.mark || *chart_.mark < chart_.x.low || *chart_.mark > chart_.x.high) return;
    const double x = place(*chart_.mark, chart_.y.low).x;
    svg_.line({x, frame_.top - 6}, {x, frame_.bottom}, {theme_.ink, 1.2, "5 4"});
    // Above the frame, where no line can be; to the left of the mark if there is no room to the right.
    const double width = text_width(chart_.mark_label, kTickSize);
    const bool right = x + width - 4 < chart_.width;
    svg_.text({right ? x - 4 : x + 4, frame_.top - 11}, chart_.mark_label,
              {theme_.ink, kTickSize, right ? Anchor::start : Anchor::end});
  }

  /// Under all lines.
  void draw_bands() {
    for (const Series& series : chart_.series) {
      std::vector<SvgPoint> low, high;
      const auto finish_band = [&] {
        std::vector<SvgPoint> outline = high;
        outline.insert(outline.end(), low.rbegin(), low.rend());
        if (high.size() > 1) svg_.area(outline, theme_.line(series.method), 0.18);
        low.clear();
        high.clear();
      };
      for (const ChartPoint& point : series.points) {
        if (std::isfinite(point.y) && std::isfinite(point.band.low) && std::isfinite(point.band.high)) {
          low.push_back(place(point.x, std::clamp(point.band.low, chart_.y.low, chart_.y.high)));
          high.push_back(place(point.x, std::clamp(point.band.high, chart_.y.low, chart_.y.high)));
        } else {
          finish_band();
        }
      }
      finish_band();
    }
  }

  void draw_lines() {
    for (size_t s = 0; s < chart_.series.size(); ++s) {
      const Series& series = chart_.series[s];
      const bool subject = series.method == "alibi";
      for (const auto& run : lines_[s]) {
        svg_.path(run, {theme_.line(series.method), subject ? 3.2 : 2.2, ""});
        if (run.size() == 1 && !chart_.markers) {
          svg_.marker(Marker::circle, run[0], 4, theme_.line(series.method), theme_.ground);
        }
      }
      if (!chart_.markers) continue;
      for (const ChartPoint& point : series.points) {
        if (!std::isfinite(point.y)) continue;
        svg_.marker(style_of(series.method).marker, place(point.x, point.y), subject ? 9.5 : 8.5,
                    theme_.line(series.method), theme_.ground, point.tooltip);
      }
    }
  }

  void draw_end_labels() {
    std::vector<const Series*> labelled;
    std::vector<double> wanted;
    for (const Series& series : chart_.series) {
      const ChartPoint* last = last_point(series);
      if (last != nullptr && ends_early(series)) continue;
      labelled.push_back(&series);
      wanted.push_back(last == nullptr ? frame_.bottom : place(last->x, last->y).y);
    }
    const std::vector<double> heights = spread(wanted, kLabelGap, frame_.top + 4, frame_.bottom - 4);
    const double x = frame_.right + (chart_.compact ? 12 : 20);
    for (size_t i = 0; i < labelled.size(); ++i) {
      const Series& series = *labelled[i];
      taken_.push_back({x, heights[i] - 9, chart_.width, heights[i] + 9});
      const ChartPoint* last = last_point(series);
      if (last == nullptr) {
        label({x, heights[i] + 4.5}, series, "no value");
        continue;
      }
      const SvgPoint end = place(last->x, last->y);
      if (std::abs(heights[i] - end.y) > 2 || x - end.x > 36) {
        svg_.path({{end.x + 7, end.y}, {x - 3, heights[i]}}, {theme_.line(series.method), 1, ""});
      }
      label({x, heights[i] + 4.5}, series, "");
    }
  }

  /// Labels of lines that end inside the frame.
  void draw_notes() {
    std::vector<std::vector<SvgPoint>> obstacles;
    for (const Runs& runs_of_line : lines_) {
      for (const auto& run : runs_of_line) obstacles.push_back(run);
    }
    if (chart_.mark) obstacles.push_back({place(*chart_.mark, chart_.y.low), {place(*chart_.mark, 1).x, frame_.top}});
    for (const Series& series : chart_.series) {
      if (!ends_early(series)) continue;
      const ChartPoint& last = *last_point(series);
      const SvgPoint end = place(last.x, last.y);
      const std::string note = series.end_note.empty() ? series.end_value : series.end_note;
      if (!series.end_note.empty()) {
        // Just behind the last marker, so that both can be seen.
        svg_.line(end, {end.x + 17, end.y}, {theme_.line(series.method), 1.5, "2 2"});
        svg_.cross({end.x + 20, end.y}, 8, {theme_.text(series.method), 2, ""});
        obstacles.push_back({end, {end.x + 25, end.y}});
      }
      const double width = text_width(chart_.compact ? note : series.method + " " + note, kLabelSize, true);
      Box box = place_near({end.x + 20, end.y}, width, 16,
                           {frame_.left, frame_.top - 6, chart_.width - 4, frame_.bottom}, obstacles, taken_);
      const double outside = std::max(0.0, box.right - (chart_.width - 4));  // where no place was free
      box.left -= outside;
      box.right -= outside;
      taken_.push_back(box);
      const double middle = (box.top + box.bottom) / 2;
      if (std::abs(middle - end.y) > 20) {
        const double nearest_x = std::clamp(end.x + 20, box.left + 8, box.right - 8);
        svg_.path({{end.x + 20, end.y + (middle < end.y ? -6 : 6)},
                   {nearest_x, middle < end.y ? box.bottom + 1 : box.top - 1}},
                  {theme_.line(series.method), 1, ""});
      }
      label({box.left, middle + 4.5}, series, note);
    }
  }

  void label(SvgPoint at, const Series& series, const std::string& note) {
    if (chart_.compact) {
      svg_.text(at, note.empty() ? series.end_value : note, {theme_.text(series.method), kLabelSize});
      return;
    }
    TextStyle style{theme_.text(series.method), kLabelSize, Anchor::start, true, note, theme_.muted};
    if (note.empty()) {
      style.suffix = series.end_value;
      style.suffix_color = theme_.ink;
    }
    svg_.text(at, series.method, style);
  }

  const LineChart& chart_;
  const Theme& theme_;
  bool heading_;
  double bottom_;  ///< of the plot and its axis titles
  double height_;
  Svg svg_;
  Box frame_;
  double last_x_ = -INFINITY;
  double legend_left_ = heading_ ? 20 : 2, legend_top_ = 0;
  std::vector<SvgPoint> legend_;  ///< where each name's mark begins
  std::vector<Runs> lines_;       ///< of each series, in pixels
  std::vector<Box> taken_;        ///< labels placed so far
};

/// Up to what is said in brackets or behind a comma.
std::string shortened(const std::string& label) {
  size_t end = label.size();
  for (const char* rest : {" (", ", ", " = "}) end = std::min(end, label.find(rest));
  return label.substr(0, end);
}

}  // namespace

LineChart compacted(LineChart chart) {
  constexpr double kBeside = 110;  // tick labels and values, roughly
  chart.id += "-compact";
  chart.width = 400;
  chart.height = 380;
  chart.compact = true;
  chart.x_label = shortened(chart.x_label);
  chart.y_label = shortened(chart.y_label);
  double right = -INFINITY;  // of the last label that stays
  for (Tick& tick : chart.x.ticks) {
    if (tick.label.empty()) continue;
    const double at = chart.x.fraction(tick.value) * (chart.width - kBeside);
    const double half = 0.5 * std::max(text_width(tick.label, kTickSize), text_width(tick.second, 11)) + 2;
    const bool touches = at - half < right;
    if (touches) tick.label = tick.second = "";
    if (!touches) right = at + half;
  }
  return chart;
}

std::string draw(const LineChart& chart, const Theme& theme, bool heading) {
  return Drawing(chart, theme, heading).finish();
}

}  // namespace alibi::report
