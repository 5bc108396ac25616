// alibi eval: how well a model predicts a text, at any length.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "evaluation_output.h"
#include "report/format.h"
#include "text/training_data.h"

namespace alibi::cli {
namespace {

struct EvalCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts;
  std::vector<int64_t> lengths;  ///< empty: see default_lengths
  int64_t stride = 0;            ///< 0: non-overlapping
  bool per_position = false;
};

/// The training length, and beyond it where the model can go there.
std::vector<int64_t> default_lengths(const LanguageModelConfig& config) {
  const int64_t length = config.train_length > 0 ? config.train_length : 128;
  if (config.transformer.position == Position::learned) return {std::min(length, config.transformer.max_length)};
  return {length, 2 * length, 4 * length, 8 * length};
}

std::vector<double> position_means(const Evaluation& evaluation) {
  std::vector<double> means;
  for (size_t i = 0; i < evaluation.position_nll.size() && evaluation.position_tokens[i] > 0; ++i) {
    means.push_back(evaluation.position_nll[i] / static_cast<double>(evaluation.position_tokens[i]));
  }
  return means;
}

/// Positions 0, 1, 2-3, 4-7, ...: the loss falls fast at first and then hardly.
void print_positions(const Evaluation& evaluation) {
  say("\n{:>17}  {:>8}\n", fmt::format("position (of {})", evaluation.length), "nll");
  const size_t count = evaluation.position_nll.size();
  for (size_t begin = 0, end = 1; begin < count; begin = end, end = std::min(count, 2 * end)) {
    double nll = 0;
    int64_t tokens = 0;
    for (size_t i = begin; i < end; ++i) {
      nll += evaluation.position_nll[i];
      tokens += evaluation.position_tokens[i];
    }
    const std::string range = end - begin == 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, end - 1);
    say("{:>17}  {:>8.4f}\n", range, nll / static_cast<double>(tokens));
  }
}

void run_eval(EvalCommand& options) {
  options.apply();
  const LanguageModel model = LanguageModel::load(options.model);
  const std::vector<int64_t> lengths = options.lengths.empty() ? default_lengths(model.config()) : options.lengths;
  for (const int64_t length : lengths) {
    check_usage(options.stride <= length, "[eval] the stride is {}, expected at most the length, {}", options.stride,
                length);
  }
  const ScoredText text = with_progress(
      [&](const TextProgress& progress) { return text_to_score(model.tokenizer(), options.texts, progress); });
  const int64_t bytes = text.bytes;

  reset_peak_resident_bytes();
  auto evals = nlohmann::ordered_json::array();
  auto positions = nlohmann::ordered_json::array();
  std::vector<Evaluation> evaluations;
  say("{:>8}  {:>8}  {:>10}  {:>10}  {:>9}  {:>8}\n", "length", "stride", "perplexity", "bits/byte", "tokens",
      "tokens/s");
  for (const int64_t length : lengths) {
    EvaluateOptions evaluate_options;
    evaluate_options.length = length;
    evaluate_options.stride = options.stride;
    const Evaluation evaluation = evaluate_with_progress(model, text.stream.tokens, evaluate_options);
    say("{:>8}  {:>8}  {:>10}  {:>10.4f}  {:>9}  {:>8}\n", length, evaluation.stride,
        format_perplexity(evaluation.perplexity()), evaluation.bits_per_byte(bytes), evaluation.tokens,
        format_count(evaluation.tokens_per_second()));
    evals.push_back(evaluation_json(evaluation, bytes));
    positions.push_back({{"length", length}, {"stride", evaluation.stride}, {"nll", position_means(evaluation)}});
    if (options.per_position) evaluations.push_back(evaluation);
  }
  const auto all = static_cast<int64_t>(text.stream.tokens.size());
  if (const int64_t longest = *std::max_element(lengths.begin(), lengths.end()); longest > all) {
    say("The text has {} tokens, fewer than the length {}: the model saw it whole\n", format_integer(all),
        format_integer(longest));
  }
  for (const Evaluation& evaluation : evaluations) print_positions(evaluation);

  nlohmann::ordered_json json = {{"model", options.model},
                                 {"position", name_of(model.config().transformer.position)},
                                 {"train_length", model.config().train_length},
                                 {"threads", threads()},
                                 {"bytes", bytes},
                                 {"peak_bytes", peak_resident_bytes()},
                                 {"eval", evals}};
  if (options.per_position) json["per_position"] = positions;
  options.write_json(json);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalCommand>();
  Command command(app, "eval", "Measure a model's perplexity on text, at any length");
  command.model(options->model);
  command.texts(options->texts, true,
                "Text files, folders (all text files in them), - for standard input, or a folder of `alibi tokenize`");
  command.counts("--lengths", options->lengths,
                 "Most tokens the model sees at once [1, 2, 4 and 8 times the training length]");
  command.count("--stride", options->stride,
                "New tokens of each window; the fewer, the more context each has [the length: no overlap]");
  command.flag("--per-position", options->per_position, "Also show the loss by position in the window");
  options->add_to(command);
  command.examples(
      "  alibi eval model/ novels/valid\n"
      "  alibi eval model/ book.txt --lengths 128,1024,65536 --json eval.json\n"
      "  alibi eval model/ book.txt --lengths 512 --stride 64 --per-position");
  command.runs([options] { run_eval(*options); });
}

}  // namespace alibi::cli
