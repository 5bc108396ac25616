#include <fmt/format.h>

#include <climits>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/runtime.h"
#include "alibi/version.h"
#include "bench/attention_report.h"
#include "bench/train_bench.h"
#include "bench/train_report.h"
#include "bench_commands.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/format.h"
#include "model/position.h"
#include "nn/products.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

struct TrainBenchCommand : CommonOptions {
  std::vector<std::string> presets = {"tiny", "small", "base"};
  std::vector<std::string> positions = {"alibi"};
  std::vector<int64_t> lengths;  ///< if empty: 512, 1024, 2048, 4096
  std::string precision = "auto";
  bool all_keys = false;
  std::optional<int64_t> vocab_size;  ///< if absent, that of the preset
  bench::TrainBenchSettings settings;
};

/// The configuration of a model from the names of its preset and position method.
LanguageModelConfig config_of(const TrainBenchCommand& command, const std::string& name) {
  LanguageModelConfig config = preset(name);
  if (command.vocab_size) config = with_vocab_size(config, static_cast<int>(*command.vocab_size));
  check_usage(!config.adaptive,
              "[--presets] {} has an adaptive softmax, whose products depend on the text; choose another preset", name);
  return config;
}

/// Measures every point of one preset.
void run_preset(const TrainBenchCommand& command, const std::string& name, const std::vector<int64_t>& lengths,
                bench::TrainBench& train_bench, const bench::MatmulCeilings& ceilings, report::Progress& progress,
                nlohmann::ordered_json& json) {
  const LanguageModelConfig config = config_of(command, name);
  progress.clear();
  say_text(bench::train_table_head(name, config, command.settings));
  flush_output();
  progress.begin(name);
  size_t done = 0;
  for (const int64_t length : lengths) {
    progress.update(static_cast<double>(done++) / static_cast<double>(lengths.size()),
                    fmt::format("length {}", length));
    std::vector<LanguageModelConfig> models;
    for (const std::string& position : command.positions) {
      models.push_back(with_position(config, position_from(position), length));
      if (command.all_keys && model::Positions(models.back().transformer).bias->bounds_far_keys()) {
        models.push_back(models.back());
        models.back().transformer.attention.tolerance = 0;
      }
    }
    const std::vector<bench::TrainPoint> points = train_bench.measure(name, models, length);
    progress.clear();
    for (const bench::TrainPoint& point : points) {
      say_text(bench::train_table_row(point, ceilings.best()));
      flush_output();
      json["points"].push_back(bench::to_json(point, ceilings.best()));
    }
  }
}

void run_bench_train(TrainBenchCommand& command) {
  command.settings.precision = precision_from(command.precision);
  command.settings.seed = command.seed;
  // Reports a misspelt name before anything is measured.
  for (const std::string& name : command.presets) config_of(command, name);
  for (const std::string& position : command.positions) position_from(position);
  const std::vector<int64_t> lengths =
      command.lengths.empty() ? std::vector<int64_t>{512, 1024, 2048, 4096} : command.lengths;
  command.apply();

  say("training, {}, {} threads, {}, alibi {}\n", cpu_name(), threads(), name_of(isa()), version);
  flush_output();
  nlohmann::ordered_json json = bench_record("train");
  report::Progress progress(stderr);
  progress.begin("ceilings");
  progress.update(0);
  const bool rounds = command.settings.precision == Precision::bf16;
  bench::MatmulCeilings ceilings(rounds ? DType::bfloat16 : DType::float32);
  bench::TrainBench train_bench(command.settings, ceilings);
  for (const std::string& name : command.presets) {
    run_preset(command, name, lengths, train_bench, ceilings, progress, json);
  }
  progress.clear();
  say("\nbest {} product: {} ({})\n", nn::product_provider().name, ceilings.describe(),
      name_of(command.settings.precision));
  json["ceilings"] = bench::to_json(ceilings);
  command.write_json(json);
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  auto options = std::make_shared<TrainBenchCommand>();
  Command command(bench, "train", "Measure time, matrix products and memory of a training step");
  std::vector<std::string> names = preset_names();
  std::erase_if(names, [](const std::string& name) { return preset(name).adaptive.has_value(); });
  command.list("--presets", options->presets, fmt::format("Model sizes: {}", fmt::join(names, ", ")), names);
  command.counts("--lengths", options->lengths, "Training lengths in tokens [512, 1024, 2048, 4096]");
  command.list("--positions", options->positions,
               fmt::format("Position methods, measured alternately: {}", fmt::join(position_names(), ", ")),
               position_names());
  command.flag("--all-keys", options->all_keys, "Also measure position method alibi without the skip rule");
  add_precision(command, options->precision);
  command.flag("--recompute", options->settings.recompute,
               "Recompute activations in the backward pass, which saves memory");
  command.count("--batch-tokens", options->settings.batch_tokens,
                "Number of tokens per step, rounded down to whole sequences");
  command.count("--micro-batch-tokens", options->settings.micro_batch_tokens,
                "Maximum number of tokens per micro-batch");
  command.count("--vocab-size", options->vocab_size, fmt::format("Vocabulary size [{}]", vocab_default()), 1, INT_MAX);
  command.number("--seconds", options->settings.seconds, "Measuring time per point in seconds");
  command.number("--longest", options->settings.longest,
                 "Maximum time of a single step in seconds; slower points are skipped");
  options->add_to(command);
  command.examples(
      "  alibi bench train\n"
      "  alibi bench train --presets small --lengths 1024,8192 --positions alibi,none,rotary --json train.json\n"
      "  alibi bench train --presets base --precision f32 --batch-tokens 2048 --longest 120");
  command.runs([options] { run_bench_train(*options); });
}

}  // namespace alibi::cli
