#include "compare/report_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compare/run.h"
#include "report/format.h"
#include "train/update.h"

namespace alibi {
namespace {

std::string model_text(const TransformerConfig& model) {
  std::string text = fmt::format("{} layers, d_model {}, {} heads, feed-forward {}, {}", model.layers, model.d_model,
                                 model.heads, model.ffn_dim(), name_of(model.activation));
  return model.dropout > 0 ? text + fmt::format(", dropout {:g}", model.dropout) : text;
}

std::string slopes_text(const ModelOptions& model) {
  const std::string given = model.slopes.empty() ? fmt::format("slopes down to 2^-{:g}", model.bias_max)
                                                 : fmt::format("slopes {:g}", fmt::join(model.slopes, ", "));
  switch (model.slope_training) {
    case SlopeTraining::fixed:
      return given;
    case SlopeTraining::learned:
      return given + " to begin with, learned by each layer";
    case SlopeTraining::learned_random:
      return fmt::format("slopes learned by each layer, from random ones between 2^-{:g} and 1", model.bias_max);
  }
  return given;
}

std::string t5_text(const CompareOptions& options) {
  const ModelOptions& model = options.model;
  std::string text = fmt::format("{} buckets, one for all from {} on", model.t5_buckets,
                                 model.t5_max_distance > 0 ? fmt::format("distance {}", model.t5_max_distance)
                                                           : "a quarter of the training length");
  const double rate = t5_rate_factor(options);
  return text + fmt::format(", drawn with standard deviation {:g}, learned at {}", model.t5_init,
                            rate == 1 ? "the rate of the rest" : fmt::format("{:g} times the rate of the rest", rate));
}

/// What the methods themselves are given.
std::string positions_text(const CompareOptions& options, const LanguageModelConfig& model) {
  std::string text = fmt::format("embeddings multiplied by {:g} with every method", model.embedding_scale);
  if (options.model.window > 0) text += fmt::format("; attention sees the {} nearest keys", options.model.window);
  for (const Position method : options.methods) {
    if (method == Position::alibi) text += "; alibi: " + slopes_text(options.model);
    if (method == Position::t5) {
      text += "; t5: " + t5_text(options);
    }
  }
  return text;
}

std::string tokenizer_text(const TrainingData& data) {
  if (data.tokenizer->kind() == "byte") return "bytes";
  return fmt::format("{}, {} different tokens; {:.2f} bytes per token of the held-out text", data.tokenizer->kind(),
                     format_integer(data.tokenizer->vocab_size()),
                     static_cast<double>(data.valid_bytes) / static_cast<double>(data.valid.tokens.size()));
}

std::string optimizer_text(const TrainOptions& t) {
  const Schedule schedule = t.schedule();
  const std::string kind = t.optimizer == Optimizer::nag
                               ? fmt::format("NAG with momentum {:g}", t.momentum)
                               : fmt::format("AdamW with betas {:g} and {:g}", t.beta1, t.beta2);
  const std::string shape = t.schedule_kind == ScheduleKind::cosine
                                ? fmt::format("cosine to {:g} %", 100 * t.final_fraction)
                                : fmt::format("{} schedule", name_of(t.schedule_kind));
  return fmt::format(
      "{}, learning rate {:g} after {} updates of warmup, {}, weight decay {:g}, gradient clipped at {:g}", kind,
      t.learning_rate, schedule.warmup_steps, shape, t.weight_decay, t.clip);
}

std::string evaluation_text(const CompareOptions& options, const HeldOutPlan& plan) {
  std::string windows = "windows that do not overlap";
  if (options.stride > 0) windows += fmt::format(", and windows that slide by {}", options.stride);
  if (const auto& interpolation = options.interpolation) {
    windows += interpolation->dynamic ? ", alibi also with slopes times training length / length"
                                      : fmt::format(", alibi also with slopes divided by {:g}", interpolation->factor);
  }
  if (options.stream) windows += ", and one pass in which each target sees all the text before it";
  return fmt::format(
      "{}, over {} held-out tokens in {} blocks, evenly spread over the files; the same targets at every "
      "length",
      windows, format_integer(plan.tokens), plan.blocks.size());
}

/// What an update really has: whole blocks.
std::string training_text(const CompareOptions& options) {
  const TrainOptions& t = options.train;
  const int64_t update = blocks_per_update(t) * t.length;
  return fmt::format("{} tokens in {} updates of {}, in blocks of {}, in {}", t.steps() * update, t.steps(), update,
                     fmt::join(options.train_lengths, ", "), name_of(t.precision));
}

std::string tuning_text(const std::vector<Tuning>& tunings) {
  if (tunings.empty()) return "none: the same learning rate for all methods, which may suit some better than others";
  std::vector<std::string> parts;
  for (const Tuning& tuning : tunings) {
    parts.push_back(fmt::format("{} {:g}{}", name_of(tuning.method), tuning.best(),
                                tuning.is_at_an_end() ? " (the last one tried: a rate beyond may be better)" : ""));
  }
  return fmt::format("learning rates {}: of {:g} the best on text carved out of the training text",
                     fmt::join(parts, ", "), fmt::join(tunings.front().rates, ", "));
}

std::string seeds_text(const CompareOptions& options) {
  const uint64_t first = options.train.seed;
  if (options.seeds == 1) return fmt::format("{}", first);
  return fmt::format("{} to {}", first, first + static_cast<uint64_t>(options.seeds) - 1);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> report_settings(
    const CompareOptions& options, const LanguageModelConfig& model, const TrainingData& data,
    const std::string& corpus_name, const HeldOutPlan& plan, const std::vector<Tuning>& tunings) {
  return {
      {"model", model_text(model.transformer)},
      {"positions", positions_text(options, model)},
      {"text", corpus_name},
      {"held out", data.split_rule},
      {"tokenizer", tokenizer_text(data)},
      {"training", training_text(options)},
      {"optimizer", optimizer_text(options.train)},
      {"tuning", tuning_text(tunings)},
      {"evaluation", evaluation_text(options, plan)},
      {options.seeds == 1 ? "seed" : "seeds", seeds_text(options)},
  };
}

}  // namespace alibi
