#include "bench/train_bench.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "alibi/runtime.h"
#include "bench/record_sections.h"
#include "bench/timing.h"
#include "bench/train_step.h"

namespace alibi::bench {
namespace {

/// The rest is for the system, the program and what oneDNN allocates.
int64_t most_of_memory() { return sysconf(_SC_PHYS_PAGES) / 10 * 9 * sysconf(_SC_PAGESIZE); }

}  // namespace

TrainBench::TrainBench(const TrainBenchSettings& settings, MatmulCeilings& ceilings)
    : settings_(settings), ceilings_(ceilings) {
  if (settings_.most_bytes == 0) settings_.most_bytes = most_of_memory();
}

/// A model that is measured.
struct TrainBench::Running {
  Running(TrainPoint& p, const LanguageModelConfig& config, const TrainOptions& options)
      : point(p), step(config, options) {}
  TrainPoint& point;
  TrainStep step;
  double first_seconds = 0;
  std::vector<RecordedProduct> products;      // of the first step
  std::vector<std::vector<double>> in_steps;  // seconds of each kind of product in each step that is timed
};

namespace {

/// Median over the runs of each kind's seconds.
std::vector<double> medians(const std::vector<std::vector<double>>& runs) {
  std::vector<double> result(runs.front().size());
  for (size_t kind = 0; kind < result.size(); ++kind) {
    std::vector<double> values;
    for (const std::vector<double>& run : runs) values.push_back(run[kind]);
    result[kind] = median(std::move(values));
  }
  return result;
}

std::vector<ProductPoint> product_points(const std::vector<ProductKind>& kinds, const std::vector<double>& alone,
                                         const std::vector<double>& in_step) {
  std::vector<ProductPoint> points;
  for (size_t i = 0; i < kinds.size(); ++i) points.push_back({kinds[i], alone[i], in_step[i]});
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return points;
}

}  // namespace

TrainPoint TrainBench::describe(const std::string& name, const LanguageModelConfig& config,
                                const TrainOptions& options) {
  TrainPoint point;
  point.model = name;
  point.layers = config.transformer.layers;
  point.d_model = config.transformer.d_model;
  point.heads = config.transformer.heads;
  point.vocab_size = config.vocab_size;
  point.position = config.transformer.position;
  point.all_keys = point.position == Position::alibi && config.transformer.tolerance == 0;
  point.precision = options.precision;
  point.recompute = options.recompute;
  point.length = options.length;
  point.tokens = options.batch_tokens;
  point.parameters = config.parameter_count();
  point.model_flops = training_flops_per_token(config, options.length) * static_cast<double>(point.tokens);
  // At best: what ran faster than anything before is never left out by mistake for long.
  const double expected = point.model_flops / (best_rate_ > 0 ? best_rate_ : ceilings_.best());
  if (expected > settings_.longest) point.expected_seconds = expected;
  point.planned_bytes = plan_training(config, options).bytes();
  point.too_large = point.planned_bytes > settings_.most_bytes;
  return point;
}

std::unique_ptr<TrainBench::Running> TrainBench::start(TrainPoint& point, const LanguageModelConfig& config,
                                                       const TrainOptions& options) {
  const bool resident_known = reset_peak_resident_bytes();
  const int64_t resident = peak_resident_bytes(), tensors = tensor_bytes();
  reset_peak_tensor_bytes();
  auto running = std::make_unique<Running>(point, config, options);
  running->first_seconds = seconds_of([&] {  // makes memory and code
    running->products = record_products([&] { point.loss = running->step.run(); });
  });
  point.peak_bytes = peak_tensor_bytes() - tensors;
  if (resident_known) {
    point.resident_before = resident;
    point.peak_resident = peak_resident_bytes();
  }
  return running;
}

void TrainBench::time(const std::vector<std::unique_ptr<Running>>& group) {
  StepProducts products(group.front()->products, group.front()->step.model().parameters(), settings_.seed);
  products.run();
  std::vector<std::vector<double>> alone;
  std::vector<double> ceiling_rates;
  std::vector<Work> works;
  double first_seconds = 0;
  for (const auto& running : group) {
    works.push_back({.run = [&] {
      running->in_steps.push_back(products.seconds_in(record_products([&] { running->step.run(); })));
    }});
    first_seconds = std::max(first_seconds, running->first_seconds);
  }
  works.push_back({.run = [&] { alone.push_back(products.run()); },
                   .prepare =
                       [&] {
                         constexpr size_t enough = 10;
                         if (ceiling_rates.size() < enough) ceiling_rates.push_back(ceilings_.run());
                       }});
  const int least_runs = first_seconds >= settings_.seconds ? 1 : 3;
  run_in_turns(works, {.seconds = settings_.seconds, .least_runs = least_runs});

  for (size_t i = 0; i < group.size(); ++i) {
    TrainPoint& point = group[i]->point;
    point.seconds = median(works[i].seconds);
    point.best_seconds = least(works[i].seconds);
    point.runs = static_cast<int64_t>(works[i].seconds.size());
    point.matmul_seconds = median(works.back().seconds);
    point.matmul_flops = products.flops();
    point.ceiling = median(ceiling_rates);
    if (settings_.products)
      point.products = product_points(products.kinds(), medians(alone), medians(group[i]->in_steps));
    best_rate_ = std::max(best_rate_, point.rate());
    if (!settings_.replay_threads.empty()) point.replays = replay_step(group[i]->step, std::max(2, least_runs));
  }
}

std::vector<Replay> TrainBench::replay_step(TrainStep& step, int runs) const {
  const auto record = [&] { return record_sections([&] { step.run(); }, step.model().parameters()); };
  Recording recording = record();
  for (int run = 1; run < runs; ++run) keep_shorter(recording, record());
  std::vector<Replay> replays;
  for (const int64_t threads : settings_.replay_threads)
    replays.push_back(replay(recording, static_cast<int>(threads)));
  return replays;
}

std::vector<TrainPoint> TrainBench::measure(const std::string& name, const std::vector<LanguageModelConfig>& configs,
                                            int64_t length) {
  TrainOptions options = step_options(length, settings_.batch_tokens, settings_.micro_batch_tokens);
  options.precision = settings_.precision;
  options.recompute = settings_.recompute;
  options.seed = settings_.seed;
  options.validate();

  std::vector<TrainPoint> points;
  for (const LanguageModelConfig& config : configs) points.push_back(describe(name, config, options));
  for (size_t next = 0; next < points.size();) {
    std::vector<std::unique_ptr<Running>> group;
    int64_t bytes = 0;
    const bool with_first = next == 0;
    for (; next < points.size(); ++next) {
      TrainPoint& point = points[next];
      if (point.left_out()) continue;
      if (!group.empty() && bytes + point.planned_bytes > settings_.most_bytes) break;
      bytes += point.planned_bytes;
      group.push_back(start(point, configs[next], options));
    }
    if (group.empty()) break;
    time(group);
    if (!with_first || points.front().left_out()) continue;
    for (const auto& running : group) running->point.of_first = running->point.seconds / points.front().seconds;
  }
  return points;
}

}  // namespace alibi::bench
