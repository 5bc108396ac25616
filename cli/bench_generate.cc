#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "alibi/runtime.h"
#include "alibi/version.h"
#include "bench/generate_bench.h"
#include "bench/timing.h"
#include "bench_commands.h"
#include "commands.h"
#include "common.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/format.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

struct GenerateBenchCommand : CommonOptions {
  std::string preset = "base";
  std::string model;              ///< if not empty, replaces the preset
  std::vector<int64_t> contexts;  ///< if empty: 512, 4096, ..., 1048576
  ModelUse use;
  std::optional<int64_t> vocab_size;  ///< if absent, that of the preset
  bench::GenerateBenchSettings settings;
};

LanguageModel model_of(const GenerateBenchCommand& command) {
  if (!command.model.empty()) return LanguageModel::load(command.model);
  LanguageModelConfig config = preset(command.preset);
  if (command.vocab_size) config = with_vocab_size(config, static_cast<int>(*command.vocab_size));
  return LanguageModel(config, command.seed);
}

void run_bench_generate(GenerateBenchCommand& command) {
  command.settings.seed = command.seed;
  command.use.check();
  command.apply();
  std::vector<int64_t> contexts =
      command.contexts.empty() ? std::vector<int64_t>{512, 4096, 32768, 262144, 1048576} : command.contexts;
  std::sort(contexts.begin(), contexts.end());
  std::optional<LanguageModel> made;
  const double load_seconds = bench::seconds_of([&] { made.emplace(model_of(command)); });
  LanguageModel& model = *made;
  command.use.apply(model);

  const std::string weights = command.model.empty() ? fmt::format("{}, random weights", command.preset) : command.model;
  bench::GenerateBench generate_bench(model, command.settings);
  say("generation, {}, {} parameters, {} of weights ({}), {}, {} threads, {}, alibi {}\n", weights,
      core::format_count(static_cast<double>(model.parameter_count())),
      core::format_bytes(generate_bench.weight_bytes()), name_of(model.precision()), cpu_name(), threads(),
      name_of(isa()), version);
  if (!command.model.empty()) say("loaded in {:.2g} s\n", load_seconds);
  flush_output();
  std::vector<bench::GeneratePoint> points;
  {
    report::Progress progress(stderr, lines_without_terminal());
    progress.begin("generate");
    points =
        generate_bench.measure(contexts, [&](double done, const std::string& what) { progress.update(done, what); });
  }
  say_text(bench::generate_table_head());
  nlohmann::ordered_json json = bench_record("generate", {{"weights", weights},
                                                          {"precision", name_of(model.precision())},
                                                          {"parameters", model.parameter_count()},
                                                          {"load_seconds", load_seconds},
                                                          {"weight_bytes", generate_bench.weight_bytes()},
                                                          {"bandwidth", generate_bench.bandwidth()}});
  for (const bench::GeneratePoint& point : points) {
    say_text(bench::generate_table_row(point, generate_bench.bandwidth()));
    json["points"].push_back(bench::to_json(point, generate_bench.bandwidth()));
  }
  say("\nmemory bandwidth: {:.1f} GB/s; column weights: share of it that reading the weights reaches\ncontexts "
      "repeat the keys of a prompt of 512 tokens; evicted: maximum weight of the keys before `held`\nfirst: time "
      "to the first token of a prompt of that length; *: estimated from the rates at shorter contexts\n",
      generate_bench.bandwidth() / 1e9);
  command.write_json(json);
}

}  // namespace

void add_bench_generate(CLI::App& bench) {
  auto options = std::make_shared<GenerateBenchCommand>();
  Command command(bench, "generate",
                  "Measure prompt speed, generation speed and memory of a model at several context lengths");
  command.text("--preset", options->preset, "NAME",
               fmt::format("Model size, with random weights: {}", fmt::join(preset_names(), ", ")), preset_names());
  command.text("--model", options->model, "MODEL", "Model folder to measure, instead of a preset");
  command.names_models("--model", options->model);
  command.exclude("--model", "--preset");
  command.counts("--contexts", options->contexts, "Context lengths in tokens [512, 4096, 32768, 262144, 1048576]");
  options->use.precision = "auto";
  add_precision(command, options->use.precision);
  options->use.add_weights_to(command);
  add_cache_type(command, options->settings.cached);
  command.count("--held", options->settings.held, "Maximum number of keys per head; older keys count as evicted", 512);
  command.count("--vocab-size", options->vocab_size, fmt::format("Vocabulary size [{}]", vocab_default()), 1, INT_MAX);
  command.number("--seconds", options->settings.seconds, "Measuring time per context length in seconds");
  command.number("--longest", options->settings.longest,
                 "Maximum time to read a whole prompt in seconds; the time of slower prompts is estimated");
  options->add_to(command);
  command.examples(
      "  alibi bench generate\n"
      "  alibi bench generate --preset small --contexts 512,262144 --json generate.json\n"
      "  alibi bench generate --model model/");
  command.runs([options] { run_bench_generate(*options); });
}

}  // namespace alibi::cli
