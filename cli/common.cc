#include "common.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "alibi/language_model.h"
#include "alibi/runtime.h"
#include "core/check.h"
#include "core/files.h"
#include "core/isa.h"
#include "formats/json.h"
#include "model/position.h"
#include "numbers.h"
#include "places.h"
#include "ranks.h"

namespace alibi::cli {

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();  // the current folder may have been removed
}

std::vector<std::string> absolute_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> result;
  for (const std::string& path : paths) result.push_back(path == "-" ? path : absolute_path(path));
  return result;
}

void CommonOptions::add_to(Command& command) {
  command.group("Common");
  command.text("--json", json, "FILE",
               "File for the results as JSON, in addition to the printed output (- is standard output)");
  command.count("--threads", threads, "Number of threads; results do not depend on it [all cores]", 1, 1024);
  command.seed(seed);
}

void CommonOptions::apply() {
  isa();  // throws an Error if ALIBI_ISA is invalid
  const int cores = cores_of_process();
  if (threads || cores > 0) set_threads(threads ? static_cast<int>(*threads) : cores);
  if (!json.empty() && is_first_rank()) json_file_ = output_file(json, "--json");
}

void CommonOptions::write_json(const nlohmann::ordered_json& results,
                               const std::function<void(const AppendText& append)>& more) const {
  if (json_file_.empty()) return;  // also on a rank other than 0
  std::string text = formats::to_text(results);
  text.resize(text.size() - 3);  // removes the closing brace and the line feeds around it
  core::write_file(json_file_, [&](const AppendText& append) {
    append(text);
    if (more) more(append);
    append("\n}\n");
  });
}

void check_texts_of_ranks(const std::vector<std::string>& texts) {
  check_usage(world() == nullptr || std::find(texts.begin(), texts.end(), "-") == texts.end(),
              "[ranks] standard input reaches rank 0 alone; give files, or a folder of tokens of `alibi tokenize`");
}

void warn_of_skipped(const FilesRead& files) {
  if (const std::string warning = describe_skipped(files); !warning.empty()) report_warning(warning);
}

nlohmann::ordered_json skipped_json(const FilesRead& files) {
  auto skipped = nlohmann::ordered_json::array();
  for (const auto& [file, reason] : files.skipped) skipped.push_back({{"file", file}, {"reason", reason}});
  return skipped;
}

void default_to_standard_input(std::vector<std::string>& texts) {
  if (!texts.empty()) return;
  texts = {"-"};
  add_input("-", "TEXT");
}

void CommonOptions::write_json(const std::string& results) const {
  if (!json_file_.empty()) core::write_file(json_file_, results);
}

TrainOptions train_options(const std::string& preset, const GivenOptions<TrainOptions>& given, uint64_t seed,
                           std::optional<int64_t> tokens, std::optional<Precision> resumed) {
  TrainOptions options = training_defaults(preset);
  given.apply_to(options);
  if (resumed && given.is_automatic("precision")) options.precision = *resumed;
  options.seed = seed;
  if (tokens) options.train_tokens = *tokens;
  if (!given.has("batch_tokens") && options.batch_tokens > options.train_tokens) {
    say("--batch-tokens is reduced from {} to {}, the number of tokens to train on\n",
        core::format_integer(options.batch_tokens), core::format_integer(options.train_tokens));
    options.batch_tokens = options.train_tokens;
  }
  return options;
}

void say_precision(Precision precision, const GivenOptions<TrainOptions>& given, std::optional<Precision> resumed) {
  const std::string why = resumed == precision              ? "as before"
                          : given.is_automatic("precision") ? "auto: " + why_best_precision()
                                                            : "as given";
  say("Precision {} ({})\n", name_of(precision), why);
}

report::ProgressOptions lines_without_terminal() {
  report::ProgressOptions options;
  options.line = [](std::string_view line) { say_progress(line); };
  return options;
}

void add_preset(Command& command, std::string& preset) {
  command.text("--preset", preset, "NAME",
               fmt::format("Preset of model size and training settings: {}", fmt::join(preset_names(), ", ")),
               preset_names());
}

std::string vocab_default() {
  return training::default_among_presets(
      [](const std::string& name) { return std::to_string(preset(name).vocab_size); });
}

void add_tokenizer(Command& command, TokenizerChoice& choice) {
  command.text("--tokenizer", choice.kind, "KIND",
               fmt::format("Tokenizer, trained on the text (byte needs no training): {}",
                           fmt::join(text::tokenizer_kinds(), ", ")),
               text::tokenizer_kinds());
  command.count("--vocab-size", choice.vocab_size,
                "Maximum vocabulary size [8192 for bpe and unigram, no limit for words]");
  command.text("--like", choice.like, "MODEL", "Use the tokenizer of this model or data folder");
  command.names_models("--like", choice.like);
  command.count("--min-count", choice.min_count,
                "Tokenizer words: minimum count of a word in the text; rarer words become the unknown token");
}

void add_precision(Command& command, std::string& precision) {
  for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
    if (std::string_view(option.name) != "precision") continue;
    command.text("--precision", precision, "NAME", help_text(choices_of(option), option.help, ""), choices_of(option));
  }
}

void add_interpolation(Command& command, std::optional<Interpolation>& interpolation, const std::string& action) {
  command.value("--interpolate", "X",
                action + "; dynamic selects X = length / training length; rotary: ntk:X or yarn:X",
                [&interpolation](std::string word) {
                  Interpolation& given = interpolation.emplace();
                  for (size_t i = 0; i < model::kRotaryScalings.size(); ++i) {
                    const std::string prefix = fmt::format("{}:", model::kRotaryScalings[i]);
                    if (!word.starts_with(prefix)) continue;
                    given.rotary = static_cast<RotaryScaling>(i);
                    word.erase(0, prefix.size());
                    break;
                  }
                  given.dynamic = word == "dynamic";
                  return given.dynamic ? "" : read_number(word, {.above = 0, .most = 1e6}, given.factor);
                });
}

void ModelUse::add_to(Command& command) {
  add_interpolation(command, interpolation);
  add_precision(command, precision);
  add_weights_to(command);
}

void ModelUse::add_weights_to(Command& command) {
  command.text(
      "--weights", weights, "TYPE",
      "Type of the matrices in memory: f32, bf16, or blocks of numbers of 8 or 4 bits: q8_0, q4_0, q4_k [the file's]",
      {"f32", "bf16", "q8_0", "q4_0", "q4_k"});
  command.flag("--quantize-activations", quantizes_activations,
               "Round what is multiplied with weights of 8 or 4 bits to 8 bits: faster, less exact");
}

std::optional<DType> ModelUse::weight_type() const {
  if (weights.empty()) return {};
  return weight_type_from(weights);
}

void ModelUse::check() const {
  precision_from(precision);
  weight_type();
}

void ModelUse::apply(LanguageModel& model) const {
  if (interpolation) model.set_interpolation(*interpolation);
  model.set_precision(precision_from(precision));
  if (const std::optional<DType> type = weight_type()) model.convert_weights(*type);
  model.set_quantized_activations(quantizes_activations);
}

void add_dropout(Command& command, std::optional<double>& dropout) {
  const std::string usual = training::default_among_presets(
      [](const std::string& name) { return fmt::format("{:g}", alibi::preset(name).transformer.block.dropout); });
  command.number("--dropout", dropout,
                 fmt::format("Dropout rate in training (0 disables every kind of dropout) [{}]", usual), {.least = 0});
}

void add_field(Command& command, std::string& field) {
  command.text("--field", field, "NAME", "Field that holds the text in each line of .jsonl files");
}

void add_valid(Command& command, std::vector<std::string>& texts) {
  command.repeated(
      "--valid", texts, "TEXT",
      "Held-out text; may be repeated [some files chosen by a fixed rule, or the last tenth of a single file]");
  command.reads("--valid");
}

}  // namespace alibi::cli
