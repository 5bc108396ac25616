// alibi bench: measures the speed of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "alibi/runtime.h"
#include "alibi/version.h"
#include "bench/attention_bench.h"
#include "bench/attention_report.h"
#include "bench/decode_bench.h"
#include "bench_commands.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/format.h"
#include "nn/products.h"
#include "report/progress.h"
#include "text/documents.h"
#include "text/stream.h"

namespace alibi::cli {
namespace {

using bench::AttentionPoint;
using bench::Pass;

struct AttentionCommand : CommonOptions {
  std::vector<int64_t> lengths;   ///< if empty, default_lengths are used
  std::vector<int64_t> contexts;  ///< if empty, defaults are used
  std::vector<std::string> passes = {"forward", "backward", "decode"};
  std::vector<std::string> tolerances;
  std::string dtype = "both";
  std::string position = "alibi";
  std::string isa;
  std::string tensors;
  int64_t heads = 8;
  std::optional<int64_t> kv_heads;  ///< if absent, the number of query heads
  int64_t head_dim = 64;
  double seconds = 0.5;
  double longest = 5;

  bool asks_for(Pass pass) const { return std::find(passes.begin(), passes.end(), name_of(pass)) != passes.end(); }
};

void force_isa(const std::string& name) {
  std::string all;
  for (const Isa isa : available_isas()) {
    if (name == name_of(isa)) return set_isa(isa);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", name_of(isa));
  }
  fail_usage("[--isa] found '{}', expected an instruction set that this CPU supports: {}", name, all);
}

bench::AttentionBenchSettings settings_of(const AttentionCommand& command) {
  for (const std::string& pass : command.passes) {
    check_usage(pass == "forward" || pass == "backward" || pass == "decode",
                "[--pass] found '{}', expected forward, backward or decode", pass);
  }
  bench::AttentionBenchSettings settings;
  settings.shape = {.heads = command.heads,
                    .kv_heads = command.kv_heads.value_or(0),
                    .head_dim = command.head_dim,
                    .position = position_from(command.position)};
  settings.shape.validate();
  if (!command.tensors.empty()) {
    settings.layers = bench::load_inputs(command.tensors);
    const bench::AttentionInputs& first = settings.layers.front();
    settings.shape = {.heads = first.q.size(2), .kv_heads = first.k.size(2), .head_dim = first.q.size(3)};
  }
  for (const std::string& text : command.tolerances) settings.tolerances.push_back(tolerance_from(text));
  settings.seconds = command.seconds;
  settings.longest = command.longest;
  settings.seed = command.seed;
  return settings;
}

/// Sorted, without duplicates.
std::vector<int64_t> rising(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

std::vector<int64_t> lengths_of(const AttentionCommand& command, const bench::AttentionBenchSettings& settings) {
  std::vector<int64_t> lengths = command.lengths;
  const int64_t most = settings.layers.empty() ? 131072 : settings.layers.front().length();
  for (int64_t length = 512; command.lengths.empty() && length <= most; length *= 2) lengths.push_back(length);
  if (lengths.empty()) lengths.push_back(most);
  return rising(std::move(lengths));
}

std::string describe(const bench::AttentionBenchSettings& settings) {
  const bench::AttentionShape& shape = settings.shape;
  const std::string inputs = settings.layers.empty()
                                 ? fmt::format("{}, N(0,1)", name_of(shape.position))
                                 : fmt::format("captured inputs, mean of {} layers", settings.layers.size());
  return fmt::format("attention, causal, batch 1, {} heads, {} key/value heads, head_dim {}, {}", shape.heads,
                     shape.key_heads(), shape.head_dim, inputs);
}

/// Prints a table row by row as its rows become available.
class Table {
 public:
  Table(report::Progress& progress, nlohmann::ordered_json& json) : progress_(progress), json_(json) {}

  void head(Pass pass, DType dtype) {
    progress_.clear();
    say_text(bench::table_head(pass, dtype));
    flush_output();
  }
  void rows(const std::vector<AttentionPoint>& points, double ceiling) {
    progress_.clear();
    for (const AttentionPoint& point : points) {
      say_text(bench::table_row(point, ceiling));
      json_["points"].push_back(bench::to_json(point));
      all_.push_back(point);
    }
    flush_output();
  }
  const std::vector<AttentionPoint>& all() const { return all_; }

 private:
  report::Progress& progress_;
  nlohmann::ordered_json& json_;
  std::vector<AttentionPoint> all_;
};

/// Forward and backward at every length.
void run_lengths(const AttentionCommand& command, const bench::AttentionBenchSettings& settings, DType dtype,
                 report::Progress& progress, Table& table, nlohmann::ordered_json& json) {
  const std::vector<int64_t> lengths = lengths_of(command, settings);
  progress.begin(fmt::format("{}: inputs and ceilings", name_of(dtype)));
  progress.update(0);
  bench::MatmulCeilings ceilings(dtype);
  bench::AttentionBench attention_bench(settings, dtype, lengths.back(), ceilings);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!command.asks_for(pass)) continue;
    table.head(pass, dtype);
    progress.begin(fmt::format("{} {}", name_of(dtype), name_of(pass)));
    for (size_t i = 0; i < lengths.size(); ++i) {
      progress.update(static_cast<double>(i) / static_cast<double>(lengths.size()),
                      fmt::format("length {}", lengths[i]));
      const std::vector<AttentionPoint> points = attention_bench.measure(pass, lengths[i]);
      table.rows(points, ceilings.best());
    }
  }
  progress.clear();
  say("best {} product: {}\nwith row-major operands: {} GFLOP/s\n", nn::product_provider().name, ceilings.describe(),
      core::format_integer(std::llround(ceilings.plain.best() / 1e9)));
  json["ceilings"][name_of(dtype)] = bench::to_json(ceilings);
  if (settings.layers.empty()) return;
  const auto shares = attention_bench.visited_by_head(lengths.back());
  say_text(bench::head_table(shares, lengths.back()));
  json["visited_by_head"][name_of(dtype)] = shares;
}

void run_contexts(const AttentionCommand& command, const bench::AttentionBenchSettings& settings, DType dtype,
                  report::Progress& progress, Table& table, nlohmann::ordered_json& json) {
  const std::vector<int64_t> contexts =
      command.contexts.empty() ? std::vector<int64_t>{4096, 65536, 1048576} : rising(command.contexts);
  table.head(Pass::decode, dtype);
  progress.begin(fmt::format("{} decode", name_of(dtype)));
  progress.update(0);
  bench::DecodeBench decode_bench(settings, dtype);
  for (size_t i = 0; i < contexts.size(); ++i) {
    progress.update(static_cast<double>(i) / static_cast<double>(contexts.size()),
                    fmt::format("context {}", contexts[i]));
    const std::vector<AttentionPoint> points = decode_bench.measure(contexts[i]);
    table.rows(points, decode_bench.bandwidth());
  }
  say("memory bandwidth: {:.1f} GB/s\n", decode_bench.bandwidth() / 1e9);
  json["bandwidth"][name_of(dtype)] = decode_bench.bandwidth();
}

void run_attention(AttentionCommand& command) {
  command.apply();
  if (!command.isa.empty()) force_isa(command.isa);
  const std::vector<DType> dtypes = dtypes_from(command.dtype);
  const bench::AttentionBenchSettings settings = settings_of(command);

  say("{}\n{}, {} threads, {}, alibi {}\n", describe(settings), cpu_name(), threads(), name_of(isa()), version);
  nlohmann::ordered_json json = bench_record(
      "attention", {{"heads", settings.shape.heads},
                    {"kv_heads", settings.shape.key_heads()},
                    {"head_dim", settings.shape.head_dim},
                    {"position", settings.layers.empty() ? name_of(settings.shape.position) : "captured"}});
  report::Progress progress(stderr);
  Table table(progress, json);
  for (const DType dtype : dtypes) {
    if (command.asks_for(Pass::forward) || command.asks_for(Pass::backward)) {
      run_lengths(command, settings, dtype, progress, table, json);
    }
    if (command.asks_for(Pass::decode) && settings.layers.empty()) {
      run_contexts(command, settings, dtype, progress, table, json);
    }
  }
  say_text(bench::memory_table(table.all()));
  command.write_json(json);
}

struct CaptureCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts;
  std::string out;
  int64_t length = 16384;
};

void run_capture(CaptureCommand& command) {
  command.apply();
  const std::filesystem::path out = output_file(command.out, "--out");
  const LanguageModel model = LanguageModel::load(command.model);
  FilesRead files;
  std::vector<int32_t> tokens =
      text::encode_stream(model.tokenizer(), text::read_documents(command.texts, std::cin, kTextField, &files));
  warn_of_skipped(files);
  check(static_cast<int64_t>(tokens.size()) >= command.length,
        "[bench capture] the text has {} tokens, expected at least the length, {}", tokens.size(), command.length);
  tokens.resize(static_cast<size_t>(command.length));
  const std::vector<bench::AttentionInputs> layers = bench::capture(model, tokens);
  bench::save_inputs(out, layers, {{"model", command.model}});
  say("queries, keys and values of {} layers for {} tokens were written to {}\n", layers.size(), command.length,
      command.out);
}

void add_attention(CLI::App& app) {
  auto options = std::make_shared<AttentionCommand>();
  Command command(app, "attention", "Measure time, throughput, visited blocks and memory of attention");
  command.counts("--lengths", options->lengths,
                 "Sequence lengths for the forward and backward passes [512, 1024, ... 131072]");
  command.counts("--contexts", options->contexts, "Numbers of cached keys for the decode pass [4096, 65536, 1048576]");
  command.list("--pass", options->passes, "Passes to measure", {"forward", "backward", "decode"});
  command.text("--dtype", options->dtype, "TYPE", "Data type: f32, bf16 or both", {"f32", "bf16", "both"});
  command.list("--tolerance", options->tolerances,
               "Tolerances of the skip rule (0 visits every key) [0 and the default: 2^-24 for f32, 2^-11 for bf16]");
  command.text("--position", options->position, "NAME",
               fmt::format("Position method: {}", fmt::join(bench::measured_positions(), ", ")),
               bench::measured_positions());
  command.count("--heads", options->heads, "Number of query heads");
  command.count("--kv-heads", options->kv_heads, "Number of key/value heads [as many as query heads]", 1);
  command.count("--head-dim", options->head_dim, "Head dimension");
  command.text("--tensors", options->tensors, "FILE",
               "File of queries, keys and values that `alibi bench capture` saved, instead of random ones");
  command.reads("--tensors");
  command.text("--isa", options->isa, "NAME",
               "Instruction set: scalar, avx2, avx512, avx512_bf16 or amx [the best one of this CPU]",
               {"scalar", "avx2", "avx512", "avx512_bf16", "amx"});
  command.number("--seconds", options->seconds, "Measuring time per point in seconds");
  command.number("--longest", options->longest, "Maximum time of a single call in seconds; slower points are skipped");
  options->add_to(command);
  command.examples(
      "  alibi bench attention\n"
      "  alibi bench attention --dtype bf16 --pass forward --lengths 2048,8192 --json attention.json\n"
      "  alibi bench capture model/ novels/valid --out qkv.safetensors\n"
      "  alibi bench attention --tensors qkv.safetensors");
  command.runs([options] { run_attention(*options); });
}

void add_capture(CLI::App& app) {
  auto options = std::make_shared<CaptureCommand>();
  Command command(app, "capture",
                  "Save the queries, keys and values of a model on a text, for `alibi bench attention --tensors`");
  command.model(options->model);
  command.texts(options->texts, true, "Text files, folders of text files, or - for standard input");
  command.text("--out", options->out, "FILE", "Output file in safetensors format (- is standard output)", {},
               /*required=*/true);
  command.count("--length", options->length, "Number of tokens of the text to process, as one sequence");
  options->add_to(command);
  command.examples("  alibi bench capture model/ novels/valid --length 16384 --out qkv.safetensors");
  command.runs([options] { run_capture(*options); });
}

}  // namespace

nlohmann::ordered_json bench_record(const char* name, const nlohmann::ordered_json& more) {
  nlohmann::ordered_json record = {{"benchmark", name}, {"command", command_line()}, {"version", version},
                                   {"cpu", cpu_name()}, {"isa", name_of(isa())},     {"threads", threads()}};
  if (!more.is_null()) record.update(more);
  record["points"] = nlohmann::ordered_json::array();
  return record;
}

std::vector<DType> dtypes_from(const std::string& name) {
  if (name == "f32") return {DType::float32};
  if (name == "bf16") return {DType::bfloat16};
  check_usage(name == "both", "[--dtype] found '{}', expected f32, bf16 or both", name);
  return {DType::float32, DType::bfloat16};
}

float tolerance_from(const std::string& text) {
  const bool power = text.starts_with("2^");
  char* end = nullptr;
  const double value = std::strtod(text.c_str() + (power ? 2 : 0), &end);
  const double tolerance = power ? std::exp2(value) : value;
  check_usage(!text.empty() && *end == '\0' && tolerance >= 0 && tolerance < 1,
              "[--tolerance] found '{}', expected 0, a number below 1, or a power like 2^-24", text);
  return static_cast<float>(tolerance);
}

void add_bench(CLI::App& app) {
  CLI::App& group = add_command_group(app, "bench", "Measure speed and memory on this machine");
  add_attention(group);
  add_bench_generate(group);
  add_bench_sequence(group);
  add_bench_train(group);
  add_capture(group);
}

}  // namespace alibi::cli
