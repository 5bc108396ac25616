#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>

#include "core/format.h"
#include "report/statistics.h"
#include "report/summary.h"
#include "report/svg.h"
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

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Range y_range(const std::vector<Series>& series) {
  Range range;
  for (const Series& line : series) {
    for (const ChartPoint& point : line.points) range.add(point.y);
  }
  return range;
}

/// Widens the range for the bands, on each side by at most the factor that the lines span. The interval of two seeds
/// can be very wide.
Range with_bands(const Range& lines, const std::vector<Series>& series) {
  Range range = lines;
  const double most = lines.high / lines.low;
  for (const Series& line : series) {
    for (const ChartPoint& point : line.points) {
      range.add(std::max(point.band.low, lines.low / most));
      range.add(std::min(point.band.high, lines.high * most));
    }
  }
  return range;
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
  const std::string seeds = number_of_seeds(results);
  if (seeds == "1") return text + fmt::format("; one run, seed {}", results.seed);
  return text + fmt::format("; means of {} seeds; bands show 95 % intervals", seeds);
}

/// Only intervals between seeds are drawn. Intervals over blocks of text mostly show how much the texts differ, which
/// is the same for all methods.
Interval band_of(const MethodResults& method, const Interval& nll, bool as_perplexity) {
  if (method.seeds.size() < 2) return {};
  return as_perplexity ? Interval{std::exp(nll.low), std::exp(nll.high)} : nll;
}

Series named_series(const CompareResults& results, const MethodResults& method) {
  return {.method = method.name,
          .points = {},
          .end_value = "",
          .end_note = "",
          .has_not_learned = has_not_learned(results, method)};
}

Series position_series(const CompareResults& results, const MethodResults& method) {
  Series series = named_series(results, method);
  const auto count = static_cast<int64_t>(method.per_position_nll.size());
  // The bins grow by a factor of 2^(1/4). The first bins hold single positions, because the curve is steep there.
  for (int64_t begin = 0; begin < count;) {
    const double edge = static_cast<double>(begin + 1) * std::exp2(0.25);
    const int64_t end = std::clamp(static_cast<int64_t>(std::floor(edge)), begin + 1, count);
    const double middle = std::sqrt(static_cast<double>(begin + 1) * static_cast<double>(end));
    series.points.push_back(
        {middle,
         mean_of(
             std::span(method.per_position_nll).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))),
         ""});
    begin = end;
  }
  if (!series.points.empty() && std::abs(series.points.back().y) <= kLargestDrawn) {
    series.end_value = core::format_decimal(series.points.back().y, 3);
  }
  return series;
}

/// Axis for losses of any sign, limited to what can be drawn.
Axis axis_of_losses(LineChart& chart) {
  leave_gaps(chart, -kLargestDrawn, kLargestDrawn);
  const Range range = y_range(chart.series);
  return range.empty() ? linear_axis(0, 1) : linear_axis(range.low, range.high);
}

using Value = std::function<double(const MethodResults&)>;
using Label = std::function<std::string(double)>;

void add_bars(std::vector<BarChart>& charts, const CompareResults& results, BarChart chart, const Value& value,
              const Label& label) {
  bool any = false;
  for (const MethodResults& method : results.methods) {
    const double number = value(method);
    const bool valid = std::isfinite(number) && number > 0;
    any = any || valid;
    chart.bars.push_back({method.name, valid ? number : NAN, valid ? label(number) : "not measured"});
  }
  if (any) charts.push_back(std::move(chart));
}

}  // namespace

std::string number_of_seeds(const CompareResults& results) {
  size_t least = SIZE_MAX, most = 1;
  for (const MethodResults& method : results.methods) {
    const size_t seeds = std::max<size_t>(method.seeds.size(), 1);
    least = std::min(least, seeds);
    most = std::max(most, seeds);
  }
  return least < most ? fmt::format("{} to {}", least, most) : fmt::format("{}", most);
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
    Series series = named_series(results, *method);
    series.end_note = stop_note(*method);
    for (const EvaluationPoint& point : method->evaluations) {
      const bool valid = measured(point);
      const std::string text = valid ? core::format_perplexity(point.perplexity) : "";
      series.points.push_back({static_cast<double>(point.length), valid ? point.perplexity : NAN,
                               fmt::format("{} at {}: {}", method->name, core::format_integer(point.length), text),
                               band_of(*method, point.interval, true)});
      if (is_drawn(point)) series.end_value = text;
    }
    chart.series.push_back(std::move(series));
  }
  leave_gaps(chart, kSmallestDrawn, kLargestDrawn);
  Range range = y_range(chart.series);
  // Differences of a percent should look like a percent: the axis spans at least 15 %.
  const double narrow = range.empty() ? 1 : std::max(1.0, std::sqrt(1.15 * range.low / range.high));
  range.add(range.low / narrow);
  range.add(range.high * narrow);
  range = with_bands(range, chart.series);
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

LineChart loss_chart(const CompareResults& results) {
  LineChart chart;
  chart.id = "loss";
  chart.title = "Training loss";
  chart.description = "Mean training loss of each method against the number of tokens seen.";
  chart.markers = false;
  chart.height = 320;
  Range tokens;
  for (const MethodResults* method : drawing_order(results)) {
    Series series = named_series(results, *method);
    for (const LossPoint& point : method->loss) {
      tokens.add(static_cast<double>(point.tokens));
      series.points.push_back({static_cast<double>(point.tokens), point.loss, ""});
      if (std::abs(point.loss) <= kLargestDrawn) series.end_value = core::format_decimal(point.loss, 3);
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  chart.y = axis_of_losses(chart);
  // On a logarithmic scale the steep first part gets as much room as the long flat part.
  if (tokens.empty()) tokens.add(1);
  chart.x = tokens.low > 0 ? logarithmic_axis(tokens.low, tokens.high) : linear_axis(tokens.low, tokens.high);
  chart.x.high = std::max(tokens.high, chart.x.low + 0.01 * std::abs(chart.x.low));
  std::erase_if(chart.x.ticks, [&](const Tick& tick) { return tick.value > chart.x.high; });
  chart.x_label = "Tokens seen in training (log scale)";
  chart.y_label = "Training loss in nats per token (lower is better)";
  return chart;
}

LineChart position_chart(const CompareResults& results) {
  LineChart chart;
  chart.id = "positions";
  chart.title = "Loss by position in the window";
  chart.description = "Mean loss of held-out tokens against their position in the evaluation window.";
  chart.markers = false;
  chart.height = 320;
  int64_t last = 0;
  for (const MethodResults* method : drawing_order(results)) {
    Series series = position_series(results, *method);
    if (series.points.empty()) continue;
    last = std::max(last, static_cast<int64_t>(method->per_position_nll.size()));
    chart.series.push_back(std::move(series));
  }
  chart.y = axis_of_losses(chart);
  chart.x = position_axis(last);
  chart.x_label = "Position in the window (log scale)";
  chart.y_label = "Mean loss in nats per token (lower is better)";
  if (last > results.train_length && results.train_length > 0) {
    chart.mark = static_cast<double>(results.train_length);
    chart.mark_label = fmt::format("training length {}", core::format_integer(results.train_length));
  }
  return chart;
}

LineChart context_chart(const CompareResults& results) {
  LineChart chart;
  chart.id = "context";
  chart.title = "Loss of the same tokens with more and more context";
  chart.description =
      "Mean loss of the same held-out tokens when each method sees more and more of the preceding text.";
  chart.height = 320;
  std::set<int64_t> contexts;
  for (const MethodResults* method : drawing_order(results)) {
    Series series = named_series(results, *method);
    for (const ContextPoint& point : method->context) {
      contexts.insert(point.context);
      series.points.push_back(
          {static_cast<double>(point.context), point.nll,
           fmt::format("{}, {} tokens of context: {}", method->name, point.context, core::format_decimal(point.nll, 4)),
           band_of(*method, point.interval, false)});
      if (std::abs(point.nll) <= kLargestDrawn) series.end_value = core::format_decimal(point.nll, 3);
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  chart.y = axis_of_losses(chart);
  chart.x = length_axis({contexts.begin(), contexts.end()}, results.train_length, chart.width - kBesidePlot);
  chart.x_label = "Tokens of context, × training length";
  chart.y_label = "Mean loss in nats per token (lower is better)";
  if (results.train_length > 0) chart.mark = static_cast<double>(results.train_length);
  chart.mark_label = fmt::format("training length {}", core::format_integer(results.train_length));
  return chart;
}

namespace {

std::vector<BarChart> speed_charts(const CompareResults& results) {
  std::vector<BarChart> charts;
  if (results.speed.empty()) return charts;
  for (size_t i = 0; i < results.speed.front().points.size(); ++i) {
    const SpeedPoint& first = results.speed.front().points[i];
    BarChart chart{fmt::format("speed-{}", i), work_name(first), "tokens per second", {}};
    for (const MethodSpeed& speed : results.speed) {
      const double rate = i < speed.points.size() ? speed.points[i].tokens_per_second : NAN;
      chart.bars.push_back({speed.name(), rate, std::isfinite(rate) ? core::format_count(rate) : "not possible"});
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

/// A method's name may contain a comma (a method with a label). Quotes keep the field together (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted;
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return fmt::format(R"("{}")", quoted);
}

}  // namespace

std::vector<BarChart> cost_charts(const CompareResults& results) {
  std::vector<BarChart> charts = speed_charts(results);
  // The largest values of int64_t become 2^63 as a double, which is out of range.
  const auto bytes = [](double value) { return core::format_bytes(static_cast<int64_t>(std::min(value, 0x1p62))); };
  add_bars(
      charts, results, {"train-memory", "Memory", "peak in training", {}},
      [](const MethodResults& method) { return static_cast<double>(method.train_peak_bytes); }, bytes);
  return charts;
}

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
