#include "report/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/format.h"
#include "report/figures.h"
#include "report/summary.h"
#include "report/tasks.h"

namespace alibi::report {
namespace {

const TaskResults* task_of_map(const CompareResults& results) {
  const TaskResults* first = nullptr;
  for (const TaskResults& task : results.tasks) {
    if (task.beside_text && (first == nullptr || task.task.name == "recall")) first = &task;
  }
  return first;
}

/// Largest distance where this value of the accuracy lies above 90 %, or `none`.
double distance_of(const MethodResults& method, double (*value)(const AnswerPoint&), double none) {
  const int64_t distance = reach_of(method.task.points, value).distance;
  return distance == 0 ? none : static_cast<double>(distance);
}

}  // namespace

std::optional<LineChart> map_chart(const CompareResults& results) {
  constexpr double kBesideMap = 240;  // pixels of labels
  const TaskResults* const task = task_of_map(results);
  const std::vector<int64_t> lengths = all_lengths(results);
  if (task == nullptr || lengths.empty()) return {};
  std::set<int64_t> distances;
  for (const MethodResults& method : task->methods) {
    for (const AnswerPoint& point : method.task.points) distances.insert(point.distance);
  }
  if (distances.size() < 2) return {};          // distances do not vary
  const int64_t none = *distances.begin() / 2;  // where methods that do not answer are drawn
  distances.insert(none);

  LineChart chart;
  chart.id = "map";
  chart.width = 720;
  chart.title = fmt::format("The map of methods: perplexity, and how far {} is answered", task->task.name);
  const std::string seeds = number_of_seeds(results.methods);
  chart.subtitle = fmt::format(
      "The same models, trained on text and tasks. Low and right is best. A point is {}. The bar of a distance goes "
      "from "
      "where the 95 % interval of the accuracy lies above {:g} % to where it still reaches that.{}",
      seeds == "1" ? "one model" : fmt::format("the mean over {} seeds", seeds), 100 * kReliable,
      seeds == "1" ? "" : " The bar of a perplexity is its 95 % interval.");
  for (const MethodResults& method : results.methods) {
    const EvaluationPoint* const text = measured_at(method, lengths.back());
    const auto answers = std::ranges::find(task->methods, method.name, &MethodResults::name);
    if (text == nullptr || answers == task->methods.end() || answers->task.points.empty()) continue;
    const auto x_none = static_cast<double>(none);
    const double x = distance_of(
        *answers, [](const AnswerPoint& point) { return point.accuracy(); }, x_none);
    const std::string value = core::format_perplexity(text->perplexity);
    chart.series.push_back(
        {.method = method.name,
         .points = {{x,
                     text->perplexity,
                     fmt::format("{}: perplexity {} at {}", method.name, value, core::format_integer(lengths.back())),
                     method.seeds.size() < 2 ? Interval()
                                             : Interval{std::exp(text->interval.low), std::exp(text->interval.high)},
                     {distance_of(
                          *answers, [](const AnswerPoint& point) { return point.interval.low; }, x_none),
                      distance_of(
                          *answers, [](const AnswerPoint& point) { return point.interval.high; }, x_none)}}},
         .end_value = value,
         .end_note = "",
         .has_not_learned = false});
  }
  leave_gaps(chart, kSmallestDrawn, kLargestDrawn);
  const AxisRange points = y_range(chart.series);
  if (points.empty()) return {};
  chart.description = fmt::format("{}: {}.", title_of(*task), reach_text(*task));
  const AxisRange range = with_bands(points, chart.series, std::max(points.high / points.low, 1.15));
  chart.y = value_axis(range.low, range.high);
  chart.y_label = fmt::format("Perplexity at {} tokens (lower is better)", core::format_integer(lengths.back()));
  const int64_t trained = has_one_training_length(results) ? results.train_length : 0;
  chart.x = length_axis({distances.begin(), distances.end()}, trained, chart.width - kBesideMap);
  chart.x.ticks.front() = {static_cast<double>(none), "none", ""};
  chart.x_label = "Largest distance from the information to the answer, in tokens";
  if (trained > 0) chart.mark = static_cast<double>(trained);
  chart.mark_label = fmt::format("training length {}", core::format_integer(trained));
  return chart;
}

}  // namespace alibi::report
