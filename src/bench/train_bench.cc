#include "bench/train_bench.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "alibi/runtime.h"
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

TrainPoint TrainBench::measure(const std::string& name, const LanguageModelConfig& config, int64_t length) {
  TrainOptions options = step_options(length, settings_.batch_tokens, settings_.micro_batch_tokens);
  options.precision = settings_.precision;
  options.recompute = settings_.recompute;
  options.seed = settings_.seed;
  options.validate();

  TrainPoint point;
  point.model = name;
  point.layers = config.transformer.layers;
  point.d_model = config.transformer.d_model;
  point.heads = config.transformer.heads;
  point.vocab_size = config.vocab_size;
  point.position = config.transformer.position;
  point.precision = options.precision;
  point.recompute = options.recompute;
  point.length = length;
  point.tokens = options.batch_tokens;
  point.parameters = config.parameter_count();
  point.model_flops = training_flops_per_token(config, length) * static_cast<double>(point.tokens);
  // At best: what ran faster than anything before is never left out by mistake for long.
  const double expected = point.model_flops / (best_rate_ > 0 ? best_rate_ : ceilings_.best());
  if (expected > settings_.longest) point.expected_seconds = expected;
  const int64_t bytes = plan_training(config, options).bytes();
  if (bytes > settings_.most_bytes) point.expected_bytes = bytes;
  if (point.left_out()) return point;

  const bool resident_known = reset_peak_resident_bytes();
  const int64_t resident = peak_resident_bytes(), tensors = tensor_bytes();
  reset_peak_tensor_bytes();
  TrainStep step(config, options);
  const double first = seconds_of([&] { point.loss = step.run(); });  // makes memory and code
  point.peak_bytes = peak_tensor_bytes() - tensors;
  if (resident_known) {
    point.resident_before = resident;
    point.peak_resident = peak_resident_bytes();
  }

  StepProducts products(step);
  products.run();
  point.matmul_flops = products.flops();
  std::vector<double> ceiling_rates;
  std::vector<Work> works;
  works.push_back({.run = [&] { step.run(); }});
  works.push_back({.run = [&] { products.run(); },
                   .prepare =
                       [&] {
                         constexpr size_t enough = 10;
                         if (ceiling_rates.size() < enough) ceiling_rates.push_back(ceilings_.run());
                       }});
  run_in_turns(works, {.seconds = settings_.seconds, .least_runs = first >= settings_.seconds ? 1 : 3});

  point.seconds = median(works[0].seconds);
  point.best_seconds = least(works[0].seconds);
  point.runs = static_cast<int64_t>(works[0].seconds.size());
  point.matmul_seconds = median(works[1].seconds);
  point.ceiling = median(ceiling_rates);
  best_rate_ = std::max(best_rate_, point.rate());
  return point;
}

}  // namespace alibi::bench
