#include "bench/train_bench.h"

#include <algorithm>
#include <vector>

#include "alibi/runtime.h"
#include "bench/step_products.h"
#include "bench/timing.h"
#include "bench/train_step.h"
#include "core/system.h"
#include "model/position.h"

namespace alibi::bench {
namespace {

/// Memory for models. The rest is left to the system, the program and the library of products.
int64_t most_of_memory() { return core::system::physical_memory() / 10 * 9; }

}  // namespace

TrainBench::TrainBench(const TrainBenchSettings& settings, MatmulCeilings& ceilings)
    : settings_(settings), ceilings_(ceilings) {
  if (settings_.max_bytes == 0) settings_.max_bytes = most_of_memory();
}

/// A model that is being measured.
struct TrainBench::Running {
  Running(TrainPoint& p, const LanguageModelConfig& config, const TrainOptions& options)
      : point(p), step(config, options) {}
  TrainPoint& point;
  TrainStep step;
  double first_seconds = 0;
};

TrainPoint TrainBench::describe(const std::string& name, const LanguageModelConfig& config,
                                const TrainOptions& options) {
  TrainPoint point;
  point.model = name;
  point.layers = config.transformer.layers;
  point.d_model = config.transformer.d_model;
  point.heads = config.transformer.attention.heads;
  point.vocab_size = config.vocab_size;
  point.position = config.transformer.position;
  point.all_keys =
      model::Positions(config.transformer).bias->bounds_far_keys() && config.transformer.attention.tolerance == 0;
  point.precision = options.precision;
  point.recompute = options.recompute;
  point.length = options.train_length;
  point.tokens = options.batch_tokens;
  point.parameters = config.parameter_count();
  point.model_flops = training_flops_per_token(config, options.train_length) * static_cast<double>(point.tokens);
  // The best rate so far gives a lower bound of the time, so no point is skipped by mistake.
  const double expected = point.model_flops / (best_rate_ > 0 ? best_rate_ : ceilings_.best());
  if (expected > settings_.longest) point.expected_seconds = expected;
  point.planned_bytes = plan_training(config, options).bytes();
  point.too_large = point.planned_bytes > settings_.max_bytes;
  return point;
}

std::unique_ptr<TrainBench::Running> TrainBench::start(TrainPoint& point, const LanguageModelConfig& config,
                                                       const TrainOptions& options) {
  const bool resident_known = reset_peak_resident_bytes();
  const int64_t resident = peak_resident_bytes(), tensors = tensor_bytes();
  reset_peak_tensor_bytes();
  auto running = std::make_unique<Running>(point, config, options);
  running->first_seconds =
      seconds_of([&] { point.loss = running->step.run(); });  // allocates memory and generates code
  point.peak_bytes = peak_tensor_bytes() - tensors;
  if (resident_known) {
    point.resident_before = resident;
    point.peak_resident = peak_resident_bytes();
  }
  return running;
}

void TrainBench::time(const std::vector<std::unique_ptr<Running>>& group) {
  TrainStep& first = group.front()->step;
  StepProducts products(first.model(), first.options(), settings_.seed);
  products.run();
  std::vector<double> ceiling_rates;
  std::vector<Work> works;
  double first_seconds = 0;
  for (const auto& running : group) {
    works.push_back({.run = [&] { running->step.run(); }});
    first_seconds = std::max(first_seconds, running->first_seconds);
  }
  works.push_back({.run = [&] { products.run(); },
                   .prepare =
                       [&] {
                         constexpr size_t enough = 10;
                         if (ceiling_rates.size() < enough) ceiling_rates.push_back(ceilings_.run());
                       }});
  const int min_runs = first_seconds >= settings_.seconds ? 1 : 3;
  run_in_turns(works, {.seconds = settings_.seconds, .min_runs = min_runs});

  for (size_t i = 0; i < group.size(); ++i) {
    TrainPoint& point = group[i]->point;
    point.seconds = median(works[i].seconds);
    point.best_seconds = least(works[i].seconds);
    point.runs = static_cast<int64_t>(works[i].seconds.size());
    point.matmul_seconds = median(works.back().seconds);
    point.matmul_flops = products.flops();
    point.ceiling = median(ceiling_rates);
    best_rate_ = std::max(best_rate_, point.rate());
  }
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
      if (!group.empty() && bytes + point.planned_bytes > settings_.max_bytes) break;
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
