#include "report/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/format.h"
#include "report/statistics.h"
#include "report/summary.h"

namespace alibi::report {
namespace {

using RunValue = std::function<double(const RunResults&)>;

double mean_over(const std::vector<RunResults>& runs, const RunValue& value) {
  std::vector<double> values;
  for (const RunResults& run : runs) values.push_back(value(run));
  return mean_of(values);
}

std::vector<double> weights_of(const HeldOut& held_out) {
  return {held_out.block_tokens.begin(), held_out.block_tokens.end()};
}

/// Whether all runs have the same number of points, so that point i has the same meaning in each.
template <class Point>
bool same_points(const std::vector<RunResults>& runs, std::vector<Point> RunResults::*points) {
  return std::all_of(runs.begin(), runs.end(),
                     [&](const RunResults& run) { return (run.*points).size() == (runs[0].*points).size(); });
}

/// The first run's point at this length that is a gap or not finite, or null.
const EvaluationPoint* not_measured(const std::vector<RunResults>& runs,
                                    std::vector<EvaluationPoint> RunResults::*points, int64_t length) {
  for (const RunResults& run : runs) {
    for (const EvaluationPoint& point : run.*points) {
      if (point.length == length && !measured(point)) return &point;
    }
  }
  return nullptr;
}

void summarize_evaluations(MethodResults& method, std::vector<EvaluationPoint> RunResults::*points,
                           const HeldOut& held_out) {
  // An unfinished run has fewer points.
  std::erase_if(method.*points, [&](const EvaluationPoint& point) {
    return std::any_of(method.runs.begin(), method.runs.end(), [&](const RunResults& run) {
      return std::none_of((run.*points).begin(), (run.*points).end(),
                          [&](const EvaluationPoint& other) { return other.length == point.length; });
    });
  });
  for (EvaluationPoint& point : method.*points) {
    if (const EvaluationPoint* const missing = not_measured(method.runs, points, point.length)) {
      point = *missing;  // a mean over only some of the runs would mislead
      continue;
    }
    std::vector<double> nll, bits, speed;
    for (const RunResults& run : method.runs) {
      for (const EvaluationPoint& other : run.*points) {
        if (other.length != point.length) continue;
        nll.push_back(other.nll);
        bits.push_back(other.bits_per_byte);
        speed.push_back(other.tokens_per_second);
      }
    }
    if (nll.size() == 1) {
      if (point.block_nll.size() == held_out.block_tokens.size()) {
        point.interval = bootstrap(point.block_nll, weights_of(held_out));
      }
      continue;
    }
    const Estimate of_seeds = estimate(nll);
    point.nll = of_seeds.mean;
    point.deviation = of_seeds.deviation;
    point.interval = of_seeds.interval;
    point.perplexity = std::exp(point.nll);
    point.bits_per_byte = mean_of(bits);
    point.tokens_per_second = mean_of(speed);
    point.block_nll.clear();
  }
}

void summarize_context(MethodResults& method) {
  const std::vector<RunResults>& runs = method.runs;
  if (!same_points(runs, &RunResults::context)) return method.context.clear();
  for (size_t i = 0; i < method.context.size(); ++i) {
    ContextPoint& point = method.context[i];
    std::vector<double> nll;
    for (const RunResults& run : runs) nll.push_back(run.context[i].nll);
    if (runs.size() == 1) {
      point.interval = bootstrap(point.block_nll, std::vector<double>(point.block_nll.size(), 16));
      continue;
    }
    const Estimate of_seeds = estimate(nll);
    point.nll = of_seeds.mean;
    point.interval = of_seeds.interval;
    point.block_nll.clear();
  }
}

void summarize_curves(MethodResults& method) {
  const std::vector<RunResults>& runs = method.runs;
  if (same_points(runs, &RunResults::loss)) {
    for (size_t i = 0; i < method.loss.size(); ++i) {
      method.loss[i].loss = mean_over(runs, [i](const RunResults& run) { return run.loss[i].loss; });
    }
  }
  if (same_points(runs, &RunResults::per_position_nll)) {
    for (size_t i = 0; i < method.per_position_nll.size(); ++i) {
      method.per_position_nll[i] = mean_over(runs, [i](const RunResults& run) { return run.per_position_nll[i]; });
    }
  }
}

/// Adds up the questions of all seeds. A point that is missing from a run is left out.
void summarize_answers(MethodResults& method) {
  std::vector<AnswerPoint> points;
  for (AnswerPoint point : method.task.points) {
    std::vector<double> accuracies;
    point.questions = point.right = 0;
    for (const AnswerPoint& other : answers_at(method.runs, point.length, point.distance)) {
      point.questions += other.questions;
      point.right += other.right;
      accuracies.push_back(other.accuracy());
    }
    if (accuracies.size() != method.runs.size()) continue;
    point.interval = wilson(point.right, point.questions);
    if (const Interval seeds = estimate(accuracies).interval; std::isfinite(seeds.low)) {
      point.interval = {std::max(0.0, std::min(point.interval.low, seeds.low)),
                        std::min(1.0, std::max(point.interval.high, seeds.high))};
    }
    points.push_back(point);
  }
  method.task.points = points;
  const Reach reach = reach_of(points, [](const AnswerPoint& point) { return point.interval.low; });
  method.largest_length = reach.length;
  method.largest_distance = reach.distance;
}

}  // namespace

MethodResults summarize(std::vector<RunResults> runs, const HeldOut& held_out) {
  std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
  MethodResults method;
  static_cast<RunResults&>(method) = runs.front();
  method.name = method.method;
  for (const RunResults& run : runs) method.seeds.push_back(run.seed);
  method.runs = std::move(runs);
  summarize_evaluations(method, &RunResults::evaluations, held_out);
  summarize_evaluations(method, &RunResults::sliding, held_out);
  summarize_evaluations(method, &RunResults::interpolated, held_out);
  summarize_evaluations(method, &RunResults::streaming, held_out);
  summarize_context(method);
  summarize_answers(method);
  if (method.runs.size() == 1) return method;
  summarize_curves(method);
  method.train_seconds = mean_over(method.runs, [](const RunResults& run) { return run.train_seconds; });
  method.train_tokens_per_second =
      mean_over(method.runs, [](const RunResults& run) { return run.train_tokens_per_second; });
  for (const RunResults& run : method.runs) {
    method.train_peak_bytes = std::max(method.train_peak_bytes, run.train_peak_bytes);
    method.eval_peak_bytes = std::max(method.eval_peak_bytes, run.eval_peak_bytes);
  }
  return method;
}

std::vector<MethodResults> methods_of(const std::vector<RunResults>& runs, const HeldOut& held_out) {
  std::vector<std::vector<RunResults>> groups;
  std::set<int64_t> train_lengths;
  for (const RunResults& run : runs) {
    train_lengths.insert(run.train_length);
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& other) {
      return other[0].method == run.method && other[0].train_length == run.train_length;
    });
    if (group == groups.end()) {
      groups.push_back({run});
    } else {
      group->push_back(run);
    }
  }
  std::vector<MethodResults> methods;
  for (std::vector<RunResults>& group : groups) {
    methods.push_back(summarize(std::move(group), held_out));
    MethodResults& method = methods.back();
    if (train_lengths.size() > 1) method.name = fmt::format("{}@{}", method.method, method.train_length);
  }
  return methods;
}

namespace {

/// The models of `methods` that were also evaluated with a sliding window, as methods of their own. Up to the training
/// length the window changes nothing.
void add_windowed(std::vector<MethodResults>& methods, const HeldOut& held_out) {
  std::vector<MethodResults> all;
  for (MethodResults& method : methods) {
    std::vector<RunResults> runs;
    for (const RunResults& run : method.runs) {
      if (run.windowed.empty()) continue;
      RunResults& windowed = runs.emplace_back();
      windowed.method = run.method;
      windowed.train_length = run.train_length;
      windowed.seed = run.seed;
      windowed.parameters = run.parameters;
      windowed.train_tokens = run.train_tokens;
      windowed.learning_rate = run.learning_rate;
      windowed.model_folder = run.model_folder;
      windowed.diverged = run.diverged;
      for (const EvaluationPoint& point : run.evaluations) {
        if (point.length <= run.train_length) windowed.evaluations.push_back(point);
      }
      windowed.evaluations.insert(windowed.evaluations.end(), run.windowed.begin(), run.windowed.end());
    }
    all.push_back(std::move(method));
    if (runs.empty()) continue;
    const std::string name = all.back().name;
    MethodResults& windowed = all.emplace_back(summarize(std::move(runs), held_out));
    windowed.window = windowed.train_length;
    windowed.name = fmt::format("{}, window {}", name, windowed.window);
  }
  methods = std::move(all);
}

}  // namespace

void take_runs(CompareResults& results, const std::vector<RunResults>& runs) {
  struct TaskRuns {
    bool beside_text;
    std::vector<RunResults> runs;
  };
  std::vector<RunResults> on_text;
  std::vector<TaskRuns> on_tasks;
  const auto add = [&](const RunResults& run, bool beside_text) {
    const auto same = std::find_if(on_tasks.begin(), on_tasks.end(), [&](const TaskRuns& others) {
      return others.beside_text == beside_text && others.runs.front().task.name == run.task.name;
    });
    same == on_tasks.end() ? on_tasks.push_back({beside_text, {run}}) : same->runs.push_back(run);
  };
  for (const RunResults& run : runs) {
    if (!run.task.name.empty()) {
      add(run, false);
      continue;
    }
    on_text.push_back(run);
    for (const TaskAnswers& answers : run.answers) {
      RunResults of_task;
      of_task.method = run.method;
      of_task.train_length = run.train_length;
      of_task.seed = run.seed;
      of_task.task = answers;
      add(of_task, true);
    }
  }
  results.methods = methods_of(on_text, results.held_out);
  add_windowed(results.methods, results.held_out);
  results.tasks.clear();
  for (const TaskRuns& of_task : on_tasks) {
    TaskResults& task = results.tasks.emplace_back(
        TaskResults{of_task.runs.front().task, of_task.beside_text, methods_of(of_task.runs, {})});
    task.task.points.clear();
  }
}

std::vector<RunResults> runs_of(const CompareResults& results) {
  std::vector<RunResults> runs;
  const auto add = [&](const std::vector<MethodResults>& methods) {
    for (const MethodResults& method : methods) {
      if (method.window == 0) runs.insert(runs.end(), method.runs.begin(), method.runs.end());
    }
  };
  add(results.methods);
  for (const TaskResults& task : results.tasks) {
    if (!task.beside_text) add(task.methods);
  }
  return runs;
}

std::optional<Difference> difference(const HeldOut& held_out, const MethodResults& from, int64_t from_length,
                                     const MethodResults& to, int64_t to_length) {
  std::vector<double> of_seeds, of_blocks;
  for (const RunResults& run : from.runs) {
    for (const RunResults& other : to.runs) {
      if (run.seed != other.seed) continue;
      const EvaluationPoint *a = measured_at(run, from_length), *b = measured_at(other, to_length);
      if (a == nullptr || b == nullptr) continue;
      of_seeds.push_back(b->nll - a->nll);
      const size_t blocks = held_out.block_tokens.size();
      if (!of_blocks.empty() || a->block_nll.size() != blocks || b->block_nll.size() != blocks) continue;
      for (size_t i = 0; i < blocks; ++i) of_blocks.push_back(b->block_nll[i] - a->block_nll[i]);
    }
  }
  if (of_seeds.empty()) return {};
  const Estimate paired = estimate(of_seeds);
  Difference result{paired.mean, paired.interval, of_seeds.size()};
  if (of_seeds.size() == 1 && !of_blocks.empty()) result.interval = bootstrap(of_blocks, weights_of(held_out));
  return result;
}

AgainstBest against_best(const CompareResults& results, int64_t length) {
  AgainstBest result;
  for (const MethodResults& method : results.methods) {
    const EvaluationPoint* point = measured_at(method, length);
    if (point == nullptr || has_not_learned(results, method)) continue;
    if (result.best == nullptr || point->nll < measured_at(*result.best, length)->nll) result.best = &method;
  }
  for (const MethodResults& method : results.methods) {
    const bool is_other = result.best != nullptr && &method != result.best;
    result.others.push_back(is_other ? difference(results.held_out, *result.best, length, method, length)
                                     : std::nullopt);
  }
  return result;
}

std::optional<EarlyTokenCurse> early_token_curse(const HeldOut& held_out, const MethodResults& method) {
  EarlyTokenCurse curse;
  curse.from = method.train_length;
  curse.to = longest_measured(method);
  const EvaluationPoint* first = measured_at(method, curse.from);
  if (first == nullptr || curse.to <= curse.from) return {};
  curse.gain = first->nll - measured_at(method, curse.to)->nll;
  const std::optional<Difference> change = difference(held_out, method, curse.from, method, curse.to);
  constexpr double kWorthSplitting = 0.02;  // nats; below this, shares of the gain are mostly noise
  if (!(curse.gain >= kWorthSplitting) || (change && std::isfinite(change->interval.low) && !change->is_sure()))
    return {};
  if (change) curse.interval = {-change->interval.high, -change->interval.low};
  std::optional<double> start, end;
  for (const ContextPoint& point : method.context) {
    if (point.context == curse.from) start = point.nll;
    if (point.context == curse.to) end = point.nll;
  }
  for (const EvaluationPoint& point : method.sliding) {  // the point with more targets is preferred
    if (point.length == curse.from) start = point.nll;
    if (point.length == curse.to) end = point.nll;
  }
  if (!start || !end) return {};
  curse.with_text = *start - *end;
  curse.share = 1 - curse.with_text / curse.gain;
  return curse;
}

std::vector<std::string> early_token_notes(const CompareResults& results) {
  const auto nats = [](double value) { return core::format_decimal(value, 4); };
  std::vector<std::string> notes;
  for (const MethodResults& method : results.methods) {
    const std::optional<EarlyTokenCurse> curse = early_token_curse(results.held_out, method);
    if (!curse || has_not_learned(results, method)) continue;
    const bool known = std::isfinite(curse->interval.low);
    notes.push_back(fmt::format(
        "{}: windows of {} tokens instead of {} lower the loss by {} nats{}. For tokens whose context always fills "
        "the window, the loss {} by {} nats. The difference, {} % of the gain, is the early token curse.",
        method.name, core::format_integer(curse->to), core::format_integer(curse->from), nats(curse->gain),
        known ? fmt::format(" ({} to {})", nats(curse->interval.low), nats(curse->interval.high)) : "",
        curse->with_text < 0 ? "rises" : "falls", nats(std::abs(curse->with_text)),
        core::format_decimal(100 * curse->share, 0)));
  }
  return notes;
}

}  // namespace alibi::report
