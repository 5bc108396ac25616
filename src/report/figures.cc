#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/format.h"
#include "report/summary.h"
#include "report/verdict.h"

namespace alibi::report {

namespace {

/// Approximate width in pixels of the tick and line labels around the plot. It decides which labels fit.
constexpr double kBesidePlot = 285;

/// The methods in drawing order. The subject is drawn last, so it lies on top.
std::vector<const MethodResults*> drawing_order(const CompareResults& results) {
  std::vector<const MethodResults*> order;
  for (const MethodResults& method : results.methods) order.push_back(&method);
  std::stable_partition(order.begin(), order.end(),
                        [](const auto* method) { return !style_of(method->name).is_subject; });
  return order;
}

bool is_drawn(const EvaluationPoint& point) {
  return measured(point) && point.perplexity >= kSmallestDrawn && point.perplexity <= kLargestDrawn;
}

/// Short reason why the line stops before the longest length, or "" if it does not.
std::string stop_note(const MethodResults& method) {
  int64_t last = 0;
  for (const EvaluationPoint& point : method.evaluations) {
    if (is_drawn(point)) last = std::max(last, point.length);
  }
  const bool tried = std::any_of(method.evaluations.begin(), method.evaluations.end(),
                                 [&](const EvaluationPoint& point) { return point.length > last; });
  if (!tried) return "";
  const bool gap = std::any_of(method.evaluations.begin(), method.evaluations.end(),
                               [&](const EvaluationPoint& point) { return point.length > last && !point.gap.empty(); });
  const bool off = longest_measured(method) > last;
  return fmt::format("{} {}",
                     gap   ? "cannot run past"
                     : off ? "is off the scale past"
                           : "is not finite past",
                     core::format_integer(last));
}

std::string one_run(const CompareResults& results) {
  std::string text = fmt::format("Trained on windows of {} {}", training_lengths(results), token_name(results));
  if (!results.preset.empty()) text += fmt::format("; {} preset", results.preset);
  if (results.parameters > 0) {
    text += fmt::format(", {} parameters", core::format_count(static_cast<double>(results.parameters)));
  }
  const std::string seeds = number_of_seeds(results.methods);
  if (seeds == "1") return text + fmt::format("; one run, seed {}", results.seed);
  return text + fmt::format("; means of {} seeds; bands show 95 % intervals", seeds);
}

/// Only intervals between seeds are drawn. Intervals over blocks of text mostly show how much the texts differ, which
/// is the same for all methods.
Interval band_of(const MethodResults& method, const Interval& nll) {
  if (method.seeds.size() < 2) return {};
  return {std::exp(nll.low), std::exp(nll.high)};
}

}  // namespace

void AxisRange::add(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

AxisRange y_range(const std::vector<Series>& series) {
  AxisRange range;
  for (const Series& line : series) {
    for (const ChartPoint& point : line.points) range.add(point.y);
  }
  return range;
}

AxisRange with_bands(const AxisRange& lines, const std::vector<Series>& series, double most) {
  AxisRange range = lines;
  for (const Series& line : series) {
    for (const ChartPoint& point : line.points) {
      range.add(std::max(point.band.low, lines.low / most));
      range.add(std::min(point.band.high, lines.high * most));
    }
  }
  return range;
}

LineChart perplexity_chart(const CompareResults& results, double width) {
  LineChart chart;
  chart.width = width;
  chart.id = "perplexity";
  chart.title = "Perplexity against evaluation length";
  chart.subtitle = one_run(results);
  chart.description = verdict(results);
  chart.markers = true;
  for (const MethodResults* method : drawing_order(results)) {
    Series series{.method = method->name,
                  .points = {},
                  .end_value = "",
                  .end_note = stop_note(*method),
                  .has_not_learned = has_not_learned(results, *method)};
    for (const EvaluationPoint& point : method->evaluations) {
      const bool valid = measured(point);
      const std::string text = valid ? core::format_perplexity(point.perplexity) : "";
      series.points.push_back({static_cast<double>(point.length), valid ? point.perplexity : NAN,
                               fmt::format("{} at {}: {}", method->name, core::format_integer(point.length), text),
                               band_of(*method, point.interval)});
      if (is_drawn(point)) series.end_value = text;
    }
    chart.series.push_back(std::move(series));
  }
  leave_gaps(chart, kSmallestDrawn, kLargestDrawn);
  AxisRange range = y_range(chart.series);
  // Differences of a percent should look like a percent: the axis spans at least 15 %.
  const double narrow = range.empty() ? 1 : std::max(1.0, std::sqrt(1.15 * range.low / range.high));
  range.add(range.low / narrow);
  range.add(range.high * narrow);
  range = with_bands(range, chart.series, range.high / range.low);
  chart.y = range.empty() ? linear_axis(1, 2) : value_axis(range.low, range.high);
  const int64_t one_length = has_one_training_length(results) ? results.train_length : 0;
  chart.x = length_axis(all_lengths(results), one_length, width - kBesidePlot);
  chart.x_label =
      one_length > 0 ? "Evaluation length in tokens, × training length" : "Evaluation length in tokens (@: trained at)";
  chart.y_label = chart.y.logarithmic ? "Perplexity on held-out text (log scale, lower is better)"
                                      : "Perplexity on held-out text (lower is better)";
  if (one_length > 0) chart.mark = static_cast<double>(one_length);
  chart.mark_label = fmt::format("trained at {}", core::format_integer(one_length));
  return chart;
}

namespace {

/// A method's name may contain a comma (a method with a label). Quotes keep the field together (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted;
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return fmt::format(R"("{}")", quoted);
}

}  // namespace

std::string figure_svg(const CompareResults& results) {
  return draw(perplexity_chart(results, 720), print_theme(), true);
}

std::string figure_csv(const CompareResults& results) {
  std::string csv = "length";
  for (const MethodResults& method : results.methods) {
    for (const char* end : {"", "_low", "_high"}) csv += fmt::format(",{}", csv_field(method.name + end));
  }
  for (const int64_t length : all_lengths(results)) {
    csv += fmt::format("\n{}", length);
    for (const MethodResults& method : results.methods) {
      const EvaluationPoint* point = measured_at(method, length);
      const Interval interval = point == nullptr ? Interval{} : point->interval;
      csv += fmt::format(",{},{},{}", point == nullptr ? std::nan("") : point->perplexity, std::exp(interval.low),
                         std::exp(interval.high));
    }
  }
  return csv + "\n";
}

}  // namespace alibi::report
