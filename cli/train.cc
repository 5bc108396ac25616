// alibi train: a language model from text.
#include "alibi/train.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/compare.h"
#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "evaluation_output.h"
#include "report/progress.h"
#include "text/training_data.h"

namespace alibi::cli {
namespace {

/// 0 and empty: what the preset says.
struct Options : CommonOptions {
  std::vector<std::string> texts, valid;
  std::string model;
  std::string position = "alibi";
  std::string preset = "tiny";
  int64_t length = 0, tokens = 0, batch_tokens = 0, micro_batch_tokens = 0;
  TokenizerChoice tokenizer;
  double epochs = 0, learning_rate = 0, warmup = -1, weight_decay = -1, clip = -1, dropout = -1;
};

TrainOptions to_library(const Options& options) {
  TrainOptions train = compare_defaults(options.preset).train;
  if (options.length > 0) train.length = options.length;
  if (options.tokens > 0) train.tokens = options.tokens;
  if (options.batch_tokens > 0) train.batch_tokens = options.batch_tokens;
  if (options.micro_batch_tokens > 0) train.micro_batch_tokens = options.micro_batch_tokens;
  if (options.learning_rate > 0) train.learning_rate = options.learning_rate;
  if (options.warmup >= 0) train.warmup_fraction = options.warmup;
  if (options.weight_decay >= 0) train.weight_decay = options.weight_decay;
  if (options.clip >= 0) train.clip = options.clip;
  train.seed = options.seed;
  train.validate();
  return train;
}

LanguageModelConfig model_config(const Options& options, int64_t train_length) {
  LanguageModelConfig config = with_position(preset(options.preset), position_from(options.position), train_length);
  if (options.dropout >= 0) config.transformer.dropout = static_cast<float>(options.dropout);
  config.validate();
  return config;
}

TrainingData read_with_progress(const Options& options) {
  Progress progress(stderr);
  std::string label;
  return training_data(options.texts, options.valid, options.tokenizer, [&](std::string_view work, double fraction) {
    if (label != work) progress.begin(label = work);
    progress.update(fraction);
  });
}

TrainResult train_with_progress(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options) {
  Progress progress(stderr);
  progress.begin("train");
  return train(model, tokens, options, [&](const TrainStatus& status) {
    progress.update(static_cast<double>(status.step) / static_cast<double>(status.steps),
                    fmt::format("loss {:.3f}  {} tokens/s", status.loss, format_count(status.tokens_per_second)));
  });
}

void run(const Options& options) {
  options.apply();
  TrainOptions train_options = to_library(options);
  LanguageModelConfig config = model_config(options, train_options.length);
  make_folder(options.model);

  const TrainingData data = read_with_progress(options);
  const std::span<const int32_t> tokens = data.train.tokens;
  config.vocab_size = data.tokenizer->vocab_size();
  LanguageModel model(config, options.seed, data.tokenizer);
  if (options.epochs > 0) {
    const double all = std::ceil(options.epochs * static_cast<double>(tokens.size()));
    check_usage(all < 1e15, "[train] {} epochs are too many", options.epochs);
    train_options.tokens = static_cast<int64_t>(all);
  }
  fmt::print("{} parameters, {} bytes to train on, {} held out\n", format_integer(model.parameter_count()),
             format_integer(data.train_bytes), format_integer(data.valid_bytes));

  reset_peak_resident_bytes();
  const TrainResult trained = train_with_progress(model, tokens, train_options);
  const int64_t peak_bytes = peak_resident_bytes();
  model.release_training_memory();
  model.save(options.model);
  fmt::print("{} tokens in {}, {} tokens/s, last loss {:.4f}, peak memory {}\n", format_integer(trained.tokens),
             format_duration(trained.seconds), format_count(trained.tokens_per_second), trained.loss.back(),
             format_bytes(peak_bytes));

  EvaluateOptions evaluate_options;
  evaluate_options.length = train_options.length;
  const Evaluation evaluation = evaluate_with_progress(model, data.valid.tokens, evaluate_options);
  fmt::print("held out: perplexity {}, {:.4f} bits per byte at length {}\n", format_perplexity(evaluation.perplexity()),
             evaluation.bits_per_byte(data.valid_bytes), evaluation.length);
  fmt::print("Model: {}\n", options.model);

  options.write_json({{"model", options.model},
                      {"position", options.position},
                      {"preset", options.preset},
                      {"parameters", model.parameter_count()},
                      {"train_length", train_options.length},
                      {"seed", options.seed},
                      {"threads", threads()},
                      {"tokenizer", {{"kind", data.tokenizer->kind()}, {"vocab_size", data.tokenizer->vocab_size()}}},
                      {"corpus", {{"train_bytes", data.train_bytes}, {"valid_bytes", data.valid_bytes}}},
                      {"train",
                       {{"tokens", trained.tokens},
                        {"seconds", trained.seconds},
                        {"tokens_per_second", trained.tokens_per_second},
                        {"peak_bytes", peak_bytes},
                        {"loss", trained.loss}}},
                      {"eval", nlohmann::ordered_json::array({evaluation_json(evaluation, data.valid_bytes)})}});
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command command(app, "train", "Train a language model on text");
  command.texts(options->texts, true, "Text files, folders (all text files in them) or - for standard input");
  command.text("-o,--out", options->model, "MODEL", "Model folder to write", true);
  add_valid(command, options->valid);
  command.text("--position", options->position, "NAME", "alibi, sinusoidal, rotary, t5, learned or none");
  add_preset(command, options->preset);
  add_tokenizer(command, options->tokenizer);
  command.count("--length", options->length, "Tokens the model sees at once in training [128]");
  command.count("--tokens", options->tokens, "Tokens to train on [the preset's]");
  command.number("--epochs", options->epochs, "Or how often to see the text");
  command.exclude("--epochs", "--tokens");
  command.count("--batch-tokens", options->batch_tokens, "Tokens of an update [the preset's]");
  command.count("--micro-batch-tokens", options->micro_batch_tokens,
                "Of these at most so many at once: less memory, the same result up to rounding [8192]");
  command.number("--learning-rate", options->learning_rate, "Peak, a cosine from there on [the preset's]");
  command.number("--warmup", options->warmup, "Part of the updates with rising rate [0.05]");
  command.number("--weight-decay", options->weight_decay, "AdamW's, on matrices [0.1]");
  command.number("--clip", options->clip, "Largest norm of the gradient; 0: any [1]");
  command.number("--dropout", options->dropout, "Part of the activations dropped in training [0]");
  options->add_to(command);
  command.examples(
      "  alibi train novels/ -o model/\n"
      "  alibi train novels/train --valid novels/valid -o model/ --preset small --length 512 --epochs 2\n"
      "  zcat *.gz | alibi train - -o model/ --tokens 5M");
  command.runs([options] { run(*options); });
}

}  // namespace alibi::cli
