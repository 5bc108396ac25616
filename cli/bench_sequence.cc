// alibi bench sequence: attention over ranks that divide a sequence, in comparison with one process.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/runtime.h"
#include "alibi/version.h"
#include "bench/attention_bench.h"
#include "bench/sequence_bench.h"
#include "bench_commands.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

struct SequenceCommand : CommonOptions {
  int64_t length = 65536;
  int64_t ranks = 4;
  std::vector<std::string> tolerances;
  std::string dtype = "both";
  std::string tensors;
  int64_t heads = 8;
  std::optional<int64_t> kv_heads;  ///< if absent, the number of query heads
  int64_t head_dim = 64;
};

/// The first layer of a file of captured inputs.
bench::AttentionInputs captured(const SequenceCommand& command) {
  const bench::AttentionInputs layer = bench::load_inputs(command.tensors).front();
  return layer.first(std::min(command.length, layer.length()));
}

void run_sequence(SequenceCommand& command) {
  command.apply();
  const std::vector<DType> dtypes = dtypes_from(command.dtype);
  bench::AttentionBenchSettings settings;
  settings.shape = {.heads = command.heads, .kv_heads = command.kv_heads.value_or(0), .head_dim = command.head_dim};
  settings.shape.validate();
  for (const std::string& text : command.tolerances) settings.tolerances.push_back(tolerance_from(text));
  const bench::AttentionInputs inputs =
      command.tensors.empty() ? bench::random_inputs(settings.shape, command.length, command.seed) : captured(command);
  say("attention over {} ranks, {} rows, {} heads, {} key/value heads, head_dim {}, {}, {} threads, {}, alibi {}\n",
      command.ranks, inputs.length(), inputs.q.size(2), inputs.k.size(2), inputs.q.size(3), cpu_name(), threads(),
      name_of(isa()), version);
  say_text(bench::sequence_table_head());
  nlohmann::ordered_json json = bench_record("sequence", {{"inputs", command.tensors.empty() ? "random" : "captured"}});
  for (const DType dtype : dtypes) {
    bench::AttentionInputs typed = inputs.to(dtype);
    // Without the skip rule the call takes minutes, so it is measured only on request.
    std::vector<float> tolerances = {settings.tolerances_of(dtype).back()};
    if (!settings.tolerances.empty()) tolerances = settings.tolerances;
    for (const float tolerance : tolerances) {
      typed.options.tolerance = tolerance;
      const bench::SequencePoint point = bench::measure_sequence(typed, static_cast<int>(command.ranks), command.seed);
      say_text(bench::sequence_table_row(point));
      flush_output();
      json["points"].push_back(bench::to_json(point));
    }
  }
  command.write_json(json);
}

}  // namespace

void add_bench_sequence(CLI::App& app) {
  auto options = std::make_shared<SequenceCommand>();
  Command command(
      app, "sequence",
      "Compare attention over ranks that divide a sequence with one process: traffic, load, bits, gradients");
  command.count("--length", options->length, "Number of rows of the sequence");
  command.count("--ranks", options->ranks, "Number of ranks, which are threads of this process", 1, 64);
  command.text("--dtype", options->dtype, "TYPE", "Data type: f32, bf16 or both", {"f32", "bf16", "both"});
  command.list("--tolerance", options->tolerances,
               "Tolerances of the skip rule (0 visits every key) [2^-24 for f32, 2^-11 for bf16]");
  command.count("--heads", options->heads, "Number of query heads");
  command.count("--kv-heads", options->kv_heads, "Number of key/value heads [as many as query heads]", 1);
  command.count("--head-dim", options->head_dim, "Head dimension");
  command.text("--tensors", options->tensors, "FILE",
               "File of queries, keys and values that `alibi bench capture` saved, instead of random ones");
  command.reads("--tensors");
  options->add_to(command);
  command.examples("  alibi bench sequence --length 65536 --ranks 4");
  command.runs([options] { run_sequence(*options); });
}

}  // namespace alibi::cli
