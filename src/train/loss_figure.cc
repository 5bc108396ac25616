#include "train/loss_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/format.h"
#include "core/parallel.h"
#include "report/line_chart.h"

namespace alibi::training {
namespace {

constexpr int64_t kPoints = 400;  // more than that no eye can tell apart

report::Series training(const TrainState& state, int64_t batch_tokens) {
  report::Series series{"training", {}, "", ""};
  const auto steps = static_cast<int64_t>(state.loss.size());
  const int64_t grain = core::ceil_div(steps, kPoints);
  for (int64_t begin = 0; begin < steps; begin += grain) {
    const int64_t end = std::min(steps, begin + grain);
    double sum = 0;
    for (int64_t step = begin; step < end; ++step) sum += static_cast<double>(state.loss[static_cast<size_t>(step)]);
    const double tokens = static_cast<double>(end * batch_tokens), mean = sum / static_cast<double>(end - begin);
    series.points.push_back({tokens, mean, fmt::format("{} tokens: {:.4f}", core::format_count(tokens), mean)});
  }
  return series;
}

report::Series held_out(const TrainState& state, int64_t batch_tokens) {
  report::Series series{"held-out", {}, "", ""};
  for (const TrainEvaluation& evaluation : state.evaluations) {
    const auto tokens = static_cast<double>(evaluation.step * batch_tokens);
    series.points.push_back(
        {tokens, evaluation.loss, fmt::format("{} tokens: {:.4f}", core::format_count(tokens), evaluation.loss)});
  }
  return series;
}

}  // namespace

std::string loss_figure(const TrainState& state, int64_t batch_tokens) {
  report::LineChart chart;
  chart.id = "loss";
  chart.title = "Training loss";
  chart.subtitle =
      fmt::format("{} updates of {} tokens", core::format_integer(state.step), core::format_integer(batch_tokens));
  chart.description = "Mean loss of the training text, and of the held-out text, against the tokens seen in training.";
  chart.markers = false;
  for (report::Series series : {training(state, batch_tokens), held_out(state, batch_tokens)}) {
    if (series.points.empty()) continue;
    series.end_value = fmt::format("{:.3f}", series.points.back().y);
    chart.series.push_back(std::move(series));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low, most = 0, least = low;
  for (const report::Series& series : chart.series) {
    for (const report::ChartPoint& point : series.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
      least = std::min(least, point.x);
      most = std::max(most, point.x);
    }
  }
  chart.y = report::linear_axis(low, high);
  chart.x = report::logarithmic_axis(least, std::max(most, 1.01 * least));
  chart.x.high = std::max(most, 1.01 * chart.x.low);
  std::erase_if(chart.x.ticks, [&](const report::Tick& tick) { return tick.value > chart.x.high; });
  chart.x_label = "Tokens seen in training (log scale)";
  chart.y_label = "Loss in nats per token (lower is better)";
  return report::draw(chart, report::print_theme(), true);
}

}  // namespace alibi::training
