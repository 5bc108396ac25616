#include "report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/format.h"
#include "report/labels.h"
#include "report/markup.h"
#include "report/svg.h"
#include "text/tokenizers/unicode.h"

namespace alibi::report {

namespace {

// Large enough to read on a phone, where the figure is scaled down. The page reduces the size on wide screens.
constexpr double kTickSize = 13.5, kSecondTickSize = 12.5, kLabelSize = 15, kSubtitleSize = 13;
constexpr double kLabelGap = 18;  ///< between the baselines of two labels
constexpr double kNoteHeight = 18;

/// The last point with a number, or null.
const ChartPoint* last_point(const Series& series) {
  const auto found = std::find_if(series.points.rbegin(), series.points.rend(),
                                  [](const ChartPoint& point) { return std::isfinite(point.y); });
  return found == series.points.rend() ? nullptr : &*found;
}

/// Text after the name at the end of a line.
std::string end_value(const Series& series) { return last_point(series) == nullptr ? "no value" : series.end_value; }

/// The name, truncated if it would take too much of the figure's width.
std::string shortened(const std::string& name, double width) {
  const auto most = static_cast<size_t>(0.4 * width / text_width("x", kLabelSize, true));
  if (text::tokenizers::count_characters(name) <= most) return name;
  return name.substr(0, character_start(name, most - 1)) + "…";
}

double label_width(const Series& series, const std::string& note, double width) {
  return text_width(shortened(series.method, width) + " " + note, kLabelSize, true);
}

/// The subtitle broken into lines between words.
std::vector<std::string> wrapped(const std::string& text, double width) {
  std::vector<std::string> lines;
  size_t begin = 0, end = 0;  // of the current line
  while (begin < text.size()) {
    const size_t next = std::min(text.find(' ', end + 1), text.size());
    if (end > begin && text_width(std::string_view(text).substr(begin, next - begin), kSubtitleSize) > width) {
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    end = next;
    if (next == text.size()) {
      lines.push_back(text.substr(begin));
      break;
    }
  }
  return lines;
}

/// Notes below the figure.
std::vector<std::string> notes_of(const LineChart& chart, bool heading) {
  std::vector<std::string> notes;
  const bool dashed = std::any_of(chart.series.begin(), chart.series.end(),
                                  [](const Series& series) { return series.has_not_learned; });
  if (dashed) notes.emplace_back("Dashed lines: methods that have not learned yet.");
  if (heading && !chart.gaps.empty()) notes.emplace_back("Some values are not drawn; figure.csv contains them.");
  return notes;
}

/// Draws one chart. All positions are in pixels.
class Drawing {
 public:
  Drawing(const LineChart& chart, const Theme& theme, bool heading)
      : chart_(chart),
        theme_(theme),
        heading_(heading),
        notes_(notes_of(chart, heading)),
        subtitle_(heading ? wrapped(chart.subtitle, chart.width - 40) : std::vector<std::string>()),
        more_heading_(subtitle_.size() > 1 ? kNoteHeight * static_cast<double>(subtitle_.size() - 1) : 0),
        bottom_(chart.height + (heading ? 56 + more_heading_ : 0)),
        height_(bottom_ + kNoteHeight * static_cast<double>(notes_.size())),
        svg_(chart.id, chart.width, height_, chart.title, chart.description) {
    place_frame();
    for (const Series& series : chart.series) lines_.push_back(runs(series));
  }

  std::string finish() && {
    if (heading_) {
      svg_.rectangle({0, 0}, chart_.width, height_, theme_.ground);
      svg_.text({20, 32}, chart_.title, {theme_.ink, 18, Anchor::start, true});
      double y = 53;
      for (const std::string& line : subtitle_) {
        svg_.text({20, y}, line, {theme_.muted, kSubtitleSize});
        y += kNoteHeight;
      }
    }
    draw_axes();
    draw_mark();
    draw_level();
    draw_bands();
    draw_bars();
    draw_lines();
    draw_end_labels();
    draw_notes();
    return std::move(svg_).finish();
  }

 private:
  using Runs = std::vector<std::vector<SvgPoint>>;

  void place_frame() {
    double tick_width = 0, labels = 0;
    for (const Tick& tick : chart_.y.ticks) tick_width = std::max(tick_width, text_width(tick.label, kTickSize));
    for (const Series& series : chart_.series) {
      labels = std::max(labels, label_width(series, end_value(series), chart_.width));
      for (const ChartPoint& point : series.points) {
        if (std::isfinite(point.y)) last_x_ = std::max(last_x_, point.x);
      }
    }
    const bool two_rows = std::any_of(chart_.x.ticks.begin(), chart_.x.ticks.end(),
                                      [](const Tick& tick) { return !tick.second.empty(); });
    frame_ = {tick_width + (heading_ ? 32 : 14),
              heading_      ? 114.0 + more_heading_
              : chart_.mark ? 52.0
                            : 36.0,
              chart_.width - labels - 30, bottom_ - (two_rows ? 66 : 50)};
  }

  SvgPoint place(double x, double y) const {
    return {frame_.left + std::clamp(chart_.x.fraction(x), 0.0, 1.0) * (frame_.right - frame_.left),
            frame_.bottom - std::clamp(chart_.y.fraction(y), 0.0, 1.0) * (frame_.bottom - frame_.top)};
  }

  /// Splits the line at its gaps.
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

  /// Whether the label stands at the end of the line inside the frame instead of in the column at the right.
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
    double taken = -INFINITY;
    for (const Tick& tick : chart_.x.ticks) {
      const double x = place(tick.value, chart_.y.low).x;
      const double half =
          0.5 * std::max(text_width(tick.label, kTickSize), text_width(tick.second, kSecondTickSize)) + 2;
      const bool labelled = !tick.label.empty() && x - half >= taken;  // labels must not touch
      svg_.line({x, frame_.bottom}, {x, frame_.bottom + (labelled ? 5.0 : 3.0)}, {theme_.muted, 1, ""});
      if (!labelled) continue;
      taken = x + half;
      svg_.text({x, frame_.bottom + 19}, tick.label, {theme_.ink, kTickSize, Anchor::middle});
      if (!tick.second.empty()) {
        svg_.text({x, frame_.bottom + 35}, tick.second, {theme_.muted, kSecondTickSize, Anchor::middle});
      }
    }
    const double left = heading_ ? 20 : 0;
    svg_.text({left, frame_.top - (chart_.mark ? 32 : 15)}, chart_.y_label, {theme_.muted, kTickSize});
    const double middle = std::max((frame_.left + frame_.right) / 2, text_width(chart_.x_label, kTickSize) / 2);
    svg_.text({middle, bottom_ - 8}, chart_.x_label, {theme_.muted, kTickSize, Anchor::middle});
    for (size_t i = 0; i < notes_.size(); ++i) {
      svg_.text({left, bottom_ + kNoteHeight * static_cast<double>(i) + 10}, notes_[i], {theme_.muted, kTickSize});
    }
  }

  void draw_mark() {
    if (!chart_.mark || *chart_.mark < chart_.x.low || *chart_.mark > chart_.x.high) return;
    const double x = place(*chart_.mark, chart_.y.low).x;
    svg_.line({x, frame_.top - 6}, {x, frame_.bottom}, {theme_.ink, 1.2, "5 4"});
    // The label stands above the frame, where there are no lines. It moves left of the mark if there is no room on the
    // right.
    const double width = text_width(chart_.mark_label, kTickSize);
    const bool right = x + width - 4 < chart_.width;
    svg_.text({right ? x - 4 : x + 4, frame_.top - 11}, chart_.mark_label,
              {theme_.ink, kTickSize, right ? Anchor::start : Anchor::end});
  }

  /// The label stands on the line, at its left end.
  void draw_level() {
    if (!chart_.level) return;
    const double y = place(chart_.x.low, *chart_.level).y;
    svg_.line({frame_.left, y}, {frame_.right, y}, {theme_.muted, 1.2, "2 4"});
    svg_.text({frame_.left + 4, y - 5}, chart_.level_label, {theme_.muted, kTickSize});
  }

  /// Bands are drawn below all lines.
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

  /// Of points with intervals of both coordinates.
  void draw_bars() {
    for (const Series& series : chart_.series) {
      const Stroke stroke{theme_.line(series.method), 1.6, ""};
      for (const ChartPoint& point : series.points) {
        if (!std::isfinite(point.x_band.low)) continue;
        svg_.line(place(point.x_band.low, point.y), place(point.x_band.high, point.y), stroke);
        if (std::isfinite(point.band.low)) {
          svg_.line(place(point.x, point.band.low), place(point.x, point.band.high), stroke);
        }
      }
    }
  }

  void draw_lines() {
    for (size_t s = 0; s < chart_.series.size(); ++s) {
      const Series& series = chart_.series[s];
      const MethodStyle style = style_of(series.method);
      for (const auto& run : lines_[s]) {
        svg_.path(run, {theme_.line(series.method), style.is_subject ? 2.8 : 2, series.has_not_learned ? "6 5" : ""});
        if (run.size() == 1 && !chart_.markers) {
          svg_.marker(Marker::circle, run[0], 4, theme_.line(series.method), theme_.ground);
        }
      }
      if (!chart_.markers) continue;
      for (const ChartPoint& point : series.points) {
        if (!std::isfinite(point.y)) continue;
        svg_.marker(style.marker, place(point.x, point.y), style.is_subject ? 9 : 8, theme_.line(series.method),
                    theme_.ground, point.tooltip);
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
    const double x = frame_.right + 16;
    for (size_t i = 0; i < labelled.size(); ++i) {
      const Series& series = *labelled[i];
      taken_.push_back({x, heights[i] - 9, chart_.width, heights[i] + 9});
      const ChartPoint* last = last_point(series);
      label({x, heights[i] + 4.5}, series, end_value(series), last == nullptr ? theme_.muted : theme_.ink);
      if (last == nullptr) continue;
      const SvgPoint end = place(last->x, last->y);
      if (std::abs(heights[i] - end.y) > 2 || x - end.x > 36) {
        svg_.path({{end.x + 7, end.y}, {x - 3, heights[i]}}, {theme_.line(series.method), 1, ""});
      }
    }
  }

  /// Draws labels of lines that end inside the frame.
  void draw_notes() {
    std::vector<std::vector<SvgPoint>> obstacles;
    for (const Runs& runs_of_line : lines_) {
      for (const auto& run : runs_of_line) obstacles.push_back(run);
    }
    for (const Series& series : chart_.series) {
      for (const ChartPoint& point : series.points) {
        if (!std::isfinite(point.x_band.low)) continue;
        obstacles.push_back({place(point.x_band.low, point.y), place(point.x_band.high, point.y)});
        if (!std::isfinite(point.band.low)) continue;
        obstacles.push_back({place(point.x, point.band.low), place(point.x, point.band.high)});
      }
    }
    if (chart_.mark) obstacles.push_back({place(*chart_.mark, chart_.y.low), {place(*chart_.mark, 1).x, frame_.top}});
    for (const Series& series : chart_.series) {
      if (!ends_early(series)) continue;
      const ChartPoint& last = *last_point(series);
      const SvgPoint end = place(last.x, last.y);
      const std::string note = series.end_note.empty() ? series.end_value : series.end_note;
      if (!series.end_note.empty()) {
        // The end mark stands just after the last marker, so that both are visible.
        svg_.line(end, {end.x + 17, end.y}, {theme_.line(series.method), 1.5, "2 2"});
        svg_.cross({end.x + 20, end.y}, 8, {theme_.text(series.method), 2, ""});
        obstacles.push_back({end, {end.x + 25, end.y}});
      }
      const double width = label_width(series, note, chart_.width);
      Box box = place_near({end.x + 20, end.y}, width, 16,
                           {frame_.left, frame_.top - 6, chart_.width - 4, frame_.bottom}, obstacles, taken_);
      const double outside = std::max(0.0, box.right - (chart_.width - 4));  // no free place was found
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
      label({box.left, middle + 4.5}, series, note, theme_.muted);
    }
  }

  void label(SvgPoint at, const Series& series, const std::string& value, const std::string& color) {
    svg_.text(at, shortened(series.method, chart_.width),
              {theme_.text(series.method), kLabelSize, Anchor::start, true, value, color});
  }

  const LineChart& chart_;
  const Theme& theme_;
  bool heading_;
  std::vector<std::string> notes_, subtitle_;
  double more_heading_;  ///< height of the second and later lines of the subtitle
  double bottom_;        ///< of the plot with its axis titles
  double height_;
  Svg svg_;
  Box frame_;
  double last_x_ = -INFINITY;
  std::vector<Runs> lines_;  ///< of each series, in pixels
  std::vector<Box> taken_;   ///< labels placed so far
};

}  // namespace

void leave_gaps(LineChart& chart, double least, double most) {
  std::string gaps;
  for (Series& series : chart.series) {
    const auto drawn = [&](const ChartPoint& point) { return point.y >= least && point.y <= most; };
    const auto last = std::find_if(series.points.rbegin(), series.points.rend(), drawn);
    const auto line_end = last.base();  // no point from here on has a value that is drawn
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

std::string draw(const LineChart& chart, const Theme& theme, bool heading) {
  return Drawing(chart, theme, heading).finish();
}

}  // namespace alibi::report
