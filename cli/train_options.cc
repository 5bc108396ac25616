#include "train_options.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace alibi::cli {
namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();  // the folder that we are in may have been removed
}

/// Paths that hold wherever the file is read from.
std::vector<std::string> absolute(const std::vector<std::string>& paths) {
  std::vector<std::string> result;
  for (const std::string& path : paths) {
    result.push_back(path == "-" ? path : absolute(path));
  }
  return result;
}

void add_model_options(Command& command, TrainSettings& s) {
  command.group("Model and text");
  add_valid(command, s.valid);
  command.text("--position", s.position, "NAME", "alibi, sinusoidal, rotary, t5, learned or none");
  command.choices("--position", position_names());
  add_preset(command, s.preset);
  add_tokenizer(command, s.tokenizer);
  command.count("--length", s.length,
                with_preset_default("Tokens the model sees at once in training", &TrainOptions::length));
  command.count("--tokens", s.tokens, with_preset_default("Tokens to train on", &TrainOptions::tokens));
  command.number("--epochs", s.epochs, "Or how often to see the text");
  command.exclude("--epochs", "--tokens");
  command.count("--batch-tokens", s.batch_tokens,
                with_preset_default("Tokens of an update", &TrainOptions::batch_tokens));
  command.count("--micro-batch-tokens", s.micro_batch_tokens,
                with_preset_default("Of these at most so many at once: less memory, the same result up to rounding",
                                    &TrainOptions::micro_batch_tokens));
  add_precision(command, s.precision);
  command.flag("--recompute", s.recompute, "Less memory: activations are computed again when they are needed");
  add_dropout(command, s.dropout);
}

void add_optimizer_options(Command& command, TrainSettings& s) {
  command.group("Optimizer");
  command.text("--optimizer", s.optimizer, "NAME", with_preset_default("adamw or nag", [](const TrainOptions& o) {
                 return std::string(name_of(o.optimizer));
               }));
  command.choices("--optimizer", {"adamw", "nag"});
  s.rate.add_to(command);
  command.number("--final-fraction", s.final_fraction,
                 with_preset_default("cosine, linear: the last rate, of the peak", &TrainOptions::final_fraction));
  command.number("--warmup-from", s.warmup_from,
                 with_preset_default("fairseq: the first rate", &TrainOptions::warmup_from));
  command.number("--floor", s.floor, with_preset_default("fairseq: the last rate", &TrainOptions::floor));
  command.count(
      "--period", s.period,
      with_preset_default("fairseq: updates from the peak to the floor; 0: the rest of the run", &TrainOptions::period),
      0);
  command.number("--weight-decay", s.weight_decay, with_preset_default("On matrices", &TrainOptions::weight_decay));
  command.number("--beta1", s.beta1, with_preset_default("AdamW", &TrainOptions::beta1));
  command.number("--beta2", s.beta2, with_preset_default("AdamW", &TrainOptions::beta2));
  command.number("--eps", s.eps, with_preset_default("AdamW", &TrainOptions::eps));
  command.number("--momentum", s.momentum, with_preset_default("NAG", &TrainOptions::momentum));
  command.number("--clip", s.clip, with_preset_default("Largest norm of the gradient; 0: any", &TrainOptions::clip));
}

void add_run_options(Command& command, TrainSettings& s) {
  command.group("Evaluation, checkpoints, metrics");
  command.count("--eval-steps", s.eval_steps, "Updates between two evaluations on held-out text; 0: at the end only",
                0);
  command.count("--eval-tokens", s.eval_tokens, "Held-out tokens to score in these, and at the end; 0: all", 0);
  command.count("--patience", s.patience, "Stop after so many of them without a new best, and save the best; 0: never",
                0);
  command.count("--checkpoint-steps", s.checkpoint_steps, "Updates between two checkpoints; 0: by time alone", 0);
  command.number("--checkpoint-minutes", s.checkpoint_minutes, "Minutes between two; 0: by updates alone");
  command.count("--keep", s.keep, "Newest checkpoints that stay; the best one does in any case");
  command.count("--log-steps", s.log_steps, "Updates between two lines of metrics.jsonl");
}

}  // namespace

void add_train_options(Command& command, TrainSettings& s) {
  command.texts(s.texts, false,
                "Text files, folders (all text files in them), - for standard input, or a folder of `alibi tokenize`");
  command.text("-o,--out", s.model, "MODEL", "Model folder to write");
  command.optional_text("--resume", s.resume, "MODEL",
                        "Continue the run of this folder (or of --out) from its newest checkpoint");
  command.text("--config", s.config, "FILE", "JSON with values for options that are not given, e.g. MODEL/train.json");
  command.flag("--plan", s.plan, "Print parameters, memory, FLOPs per token and the estimated time, and train nothing");
  add_model_options(command, s);
  add_optimizer_options(command, s);
  add_run_options(command, s);
  s.add_to(command);
}

TrainOptions train_options(const TrainSettings& s, std::optional<int64_t> text_tokens) {
  TrainOptions train = training_defaults(s.preset);
  const auto set = [](auto& value, auto chosen, bool is_chosen) {
    if (is_chosen) value = chosen;
  };
  set(train.length, s.length, s.length > 0);
  set(train.tokens, s.tokens, s.tokens > 0);
  set(train.micro_batch_tokens, s.micro_batch_tokens, s.micro_batch_tokens > 0);
  train.precision = precision_from(s.precision);
  train.recompute = s.recompute;
  if (!s.optimizer.empty()) train.optimizer = optimizer_from(s.optimizer);
  s.rate.apply_to(train);
  set(train.final_fraction, s.final_fraction, s.final_fraction >= 0);
  set(train.warmup_from, s.warmup_from, s.warmup_from >= 0);
  set(train.floor, s.floor, s.floor >= 0);
  set(train.period, s.period, s.period >= 0);
  set(train.weight_decay, s.weight_decay, s.weight_decay >= 0);
  set(train.beta1, s.beta1, s.beta1 >= 0);
  set(train.beta2, s.beta2, s.beta2 >= 0);
  set(train.eps, s.eps, s.eps > 0);
  set(train.momentum, s.momentum, s.momentum >= 0);
  set(train.clip, s.clip, s.clip >= 0);
  train.eval_steps = s.eval_steps;
  train.eval_tokens = s.eval_tokens;
  train.patience = s.patience;
  train.seed = s.seed;
  if (text_tokens) {
    const double all = std::ceil(s.epochs * static_cast<double>(*text_tokens));
    check_usage(all < 1e15, "[train] {} epochs are too many", s.epochs);
    train.tokens = static_cast<int64_t>(all);
  } else if (s.epochs > 0) {
    train.tokens = INT64_MAX;
  }
  choose_batch(train, s.batch_tokens);
  train.validate();
  return train;
}

LanguageModelConfig model_config(const TrainSettings& s, int64_t train_length) {
  LanguageModelConfig config = with_position(preset(s.preset), position_from(s.position), train_length);
  if (s.dropout >= 0) config = with_dropout(config, static_cast<float>(s.dropout));
  config.validate();
  return config;
}

nlohmann::ordered_json settings_json(const TrainSettings& s, const TrainOptions& o, const LanguageModelConfig& config) {
  nlohmann::ordered_json json = {
      {"text", absolute(s.texts)},
      {"valid", absolute(s.valid)},
      {"out", absolute(s.model)},
      {"position", s.position},
      {"preset", s.preset},
      {"tokenizer", s.tokenizer.kind},
      {"vocab-size", s.tokenizer.vocab_size},
      {"min-count", s.tokenizer.min_count},
      {"length", o.length},
      {"tokens", o.tokens},
      {"batch-tokens", o.batch_tokens},
      {"micro-batch-tokens", o.micro_batch_tokens},
      {"precision", name_of(o.precision)},
      {"recompute", o.recompute},
      {"dropout", config.transformer.dropout},
      {"optimizer", name_of(o.optimizer)},
      {"learning-rate", o.learning_rate},
      {"schedule", name_of(o.schedule_kind)},
  };
  if (o.warmup_steps >= 0) {
    json["warmup-steps"] = o.warmup_steps;
  } else {
    json["warmup"] = o.warmup_fraction;
  }
  json.update({{"final-fraction", o.final_fraction},
               {"warmup-from", o.warmup_from},
               {"floor", o.floor},
               {"period", o.period},
               {"weight-decay", o.weight_decay},
               {"beta1", o.beta1},
               {"beta2", o.beta2},
               {"eps", o.eps},
               {"momentum", o.momentum},
               {"clip", o.clip},
               {"eval-steps", o.eval_steps},
               {"eval-tokens", o.eval_tokens},
               {"patience", o.patience},
               {"checkpoint-steps", s.checkpoint_steps},
               {"checkpoint-minutes", s.checkpoint_minutes},
               {"keep", s.keep},
               {"log-steps", s.log_steps},
               {"seed", s.seed}});
  // What was not asked for is left out where 0 is no value of the option.
  if (s.tokenizer.vocab_size == 0) json.erase("vocab-size");
  if (!s.tokenizer.like.empty()) json["like"] = absolute(s.tokenizer.like);
  return json;
}

}  // namespace alibi::cli
