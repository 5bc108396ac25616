#include "report/attention_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/format.h"
#include "report/axis.h"
#include "report/svg.h"

namespace alibi::report {
namespace {

constexpr int kMax = 8;                    // maximum number of rows and of columns
constexpr double kMin = 1e-6;              // smaller weights are not drawn
constexpr double kLeft = 46, kRight = 10;  // margins of the panels
constexpr double kGap = 10, kPanel = 96, kTitle = 16;
constexpr double kSmall = 10, kUsual = 12;

/// Rounding may make a mean of softmax weights slightly larger than 1.
bool is_weight(double value) { return value >= 0 && value <= 1.001; }

/// Up to kMax of the numbers 0 .. count - 1, evenly spread, including both ends.
std::vector<int> some_of(int count) {
  std::vector<int> chosen;
  const int drawn = std::min(count, kMax);
  for (int i = 0; i < drawn; ++i) chosen.push_back(drawn == 1 ? 0 : i * (count - 1) / (drawn - 1));
  return chosen;
}

/// "2^-4" for a power of two, otherwise the number.
std::string slope_text(double slope) {
  if (!std::isfinite(slope)) return "";
  const double exponent = std::log2(slope);
  const bool power = slope > 0 && std::abs(exponent - std::round(exponent)) < 1e-6;
  return power ? fmt::format("2^{}", std::llround(exponent)) : fmt::format("{:.3g}", slope);
}

class HeadPanels {
 public:
  HeadPanels(const AttentionMap& map, const std::string& method, const Theme& theme, bool heading)
      : map_(map), theme_(theme), colour_(theme.line(method)) {
    int layers = 0, heads = 0;
    for (const HeadAttention& head : map.heads) {
      layers = std::max(layers, head.layer + 1);
      heads = std::max(heads, head.head + 1);
    }
    rows_ = some_of(layers);
    columns_ = some_of(heads);
    x_ = position_axis(map.distances.back());  // the axis shows distance + 1, because a logarithmic axis has no 0
    y_ = logarithmic_axis(kMin, 1);
    top_ = heading ? 66 : 22;
    panel_width_ = std::clamp(560.0 / static_cast<double>(columns_.size()) - kGap, 64.0, 200.0);
    width_ = kLeft + static_cast<double>(columns_.size()) * (panel_width_ + kGap) + kRight;
    if (heading) width_ = std::max(width_, 560.0);
    height_ = top_ + static_cast<double>(rows_.size()) * (kPanel + kTitle + kGap) + 40;
  }

  std::string draw(bool heading) {
    const std::string title = "Attention weight against distance";
    Svg svg("attention", width_, height_, title,
            "For each layer and head, the mean weight of a key at each distance, and the weight that the slope "
            "alone would give.");
    if (heading) {
      svg.rectangle({0, 0}, width_, height_, theme_.ground);
      svg.text({16, 26}, title, {theme_.ink, 17, Anchor::start, true});
    }
    draw_legend(svg, heading ? 48 : 12);
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (size_t column = 0; column < columns_.size(); ++column) draw_panel(svg, row, column);
    }
    svg.text({kLeft + (width_ - kLeft - kRight) / 2, height_ - 8},
             "Distance from query to key in tokens (above each panel: layer, head and slope)",
             {theme_.muted, kUsual, Anchor::middle});
    return std::move(svg).finish();
  }

 private:
  void draw_legend(Svg& svg, double y) const {
    svg.path({{kLeft, y - 4}, {kLeft + 24, y - 4}}, {colour_, 2.2, ""});
    svg.text({kLeft + 30, y}, "weight of a key in the trained model", {theme_.ink, kUsual});
    const double second = kLeft + 40 + text_width("weight of a key in the trained model", kUsual);
    svg.path({{second, y - 4}, {second + 24, y - 4}}, {theme_.muted, 1.4, "4 3"});
    svg.text({second + 30, y}, "weight from the slope alone", {theme_.ink, kUsual});
  }

  const HeadAttention* find(int layer, int head) const {
    for (const HeadAttention& each : map_.heads) {
      if (each.layer == layer && each.head == head) return &each;
    }
    return nullptr;
  }

  /// The middle of a bin on the logarithmic scale of distance + 1.
  double middle(size_t bin) const {
    const double low = static_cast<double>(map_.distances[bin]) + 1,
                 high = static_cast<double>(map_.distances[bin + 1]);
    return std::sqrt(low * std::max(low, high));
  }

  /// Draws the line without the parts where the weight is below kMin.
  void draw_line(Svg& svg, SvgPoint corner, const std::vector<double>& weights, const Stroke& stroke) const {
    std::vector<SvgPoint> points;
    for (size_t bin = 0; bin < weights.size() && bin + 1 < map_.distances.size(); ++bin) {
      if (is_weight(weights[bin]) && weights[bin] >= kMin) {
        points.push_back({corner.x + panel_width_ * x_.fraction(middle(bin)),
                          corner.y + kPanel * (1 - y_.fraction(std::min(1.0, weights[bin])))});
      } else {
        svg.path(points, stroke);
        points.clear();
      }
    }
    svg.path(points, stroke);
  }

  void draw_panel(Svg& svg, size_t row, size_t column) const {
    const HeadAttention* const head = find(rows_[row], columns_[column]);
    if (head == nullptr) return;
    const SvgPoint corner{kLeft + static_cast<double>(column) * (panel_width_ + kGap),
                          top_ + kTitle + static_cast<double>(row) * (kPanel + kTitle + kGap)};
    const SvgPoint end{corner.x + panel_width_, corner.y + kPanel};
    for (const Tick& tick : y_.ticks) {
      const double y = corner.y + kPanel * (1 - y_.fraction(tick.value));
      svg.line({corner.x, y}, {end.x, y}, {theme_.grid, 1, ""});
      if (column == 0) svg.text({corner.x - 5, y + 3.5}, tick.label, {theme_.muted, kSmall, Anchor::end});
    }
    svg.line({corner.x, end.y}, end, {theme_.muted, 1, ""});
    if (row + 1 == rows_.size()) draw_distances(svg, corner);
    std::string name = fmt::format("layer {}, head {}", head->layer + 1, head->head + 1);
    const std::string slope = slope_text(head->slope);
    const bool fits = text_width(name + ": " + slope, kSmall) < panel_width_ + kGap;
    if (!fits) name = fmt::format("{}.{}", head->layer + 1, head->head + 1);
    svg.text({corner.x, corner.y - 4}, slope.empty() ? name : name + ": " + slope, {theme_.ink, kSmall});
    draw_line(svg, corner, head->bias, {theme_.muted, 1.4, "4 3"});
    draw_line(svg, corner, head->weight, {colour_, 2.2, ""});
    const auto all_weights = [](const std::vector<double>& values) {
      return std::all_of(values.begin(), values.end(), is_weight);
    };
    if (!all_weights(head->weight) || !all_weights(head->bias)) {
      svg.text({corner.x + 2, end.y - 4}, "some values are not attention weights", {theme_.muted, kSmall});
    }
  }

  /// Draws as many distance labels as fit.
  void draw_distances(Svg& svg, SvgPoint corner) const {
    double taken = corner.x - 10;
    const int64_t last = map_.distances.back();
    for (int64_t distance = 0; distance < last; distance = distance == 0         ? 1
                                                           : distance > last / 4 ? last
                                                                                 : 4 * distance) {
      const std::string text = core::format_integer(distance);
      const double x = corner.x + panel_width_ * x_.fraction(static_cast<double>(distance + 1));
      const double half = text_width(text, kSmall) / 2;
      if (x - half < taken + 6) continue;
      svg.text({x, corner.y + kPanel + 13}, text, {theme_.muted, kSmall, Anchor::middle});
      taken = x + half;
    }
  }

  const AttentionMap& map_;
  const Theme& theme_;
  std::string colour_;
  std::vector<int> rows_, columns_;  // layers and heads that are drawn
  Axis x_, y_;
  double top_ = 0, panel_width_ = 0, width_ = 0, height_ = 0;
};

}  // namespace

std::string draw_attention(const AttentionMap& map, const std::string& method, const Theme& theme, bool heading) {
  if (map.heads.empty() || map.distances.size() < 2) return "";
  return HeadPanels(map, method, theme, heading).draw(heading);
}

}  // namespace alibi::report
