#include "compare/report_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "compare/options.h"
#include "compare/run.h"
#include "compare/task_run.h"
#include "core/format.h"
#include "formats/options.h"
#include "model/config_fields.h"
#include "model/parameters.h"
#include "model/position.h"
#include "train/batches.h"

namespace alibi::comparison {
namespace {

/// "1 layer", "2 layers"
std::string number_of(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string model_text(const TransformerConfig& model) {
  std::string text =
      fmt::format("{}, d_model {}, {}, feed-forward {}, {}", number_of(model.layers, "layer"), model.d_model,
                  number_of(model.attention.heads, "head"), model.ffn_dim(), name_of(model.block.activation));
  return model.block.dropout > 0 ? text + fmt::format(", dropout {:g}", model.block.dropout) : text;
}

/// "t5_buckets 32": the values of a field in a method's models at all training lengths.
std::string field_text(const model::ConfigField& field, const CompareOptions& options, Position method) {
  std::set<std::string> values;
  for (const int64_t length : options.train_lengths) {
    const std::string value = formats::short_text_of(field.get(model_config(options, method, length, nullptr)));
    values.insert(value.empty() ? "published" : value);
  }
  return fmt::format("{} {}", field.name, fmt::join(values, " or "));
}

/// Fields of the models other than their size: those set for all models, and those of a position method.
std::string positions_text(const CompareOptions& options, const LanguageModelConfig& model) {
  std::string text = fmt::format("embeddings multiplied by {:g} with every method", model.transformer.embedding.scale);
  const std::set<std::string_view> said = {"layers", "d_model", "heads", "activation", "embedding_scale"};
  for (const model::ConfigField& field : formats::options_of<LanguageModelConfig>) {
    const bool is_news = options.model.find(field.name) && !field.more.method && !said.contains(field.name);
    if (is_news) text += "; " + field_text(field, options, options.positions.front());
  }
  for (const Position method : options.positions) {
    std::vector<std::string> own;
    for (const model::ConfigField& field : model::config_fields()) {
      if (field.more.method && field.belongs_to(method)) own.push_back(field_text(field, options, method));
    }
    if (!own.empty()) text += fmt::format("; {}: {}", name_of(method), fmt::join(own, ", "));
  }
  return text;
}

std::string tokenizer_text(const TrainingData& data) {
  if (data.tokenizer->kind() == "byte") return "bytes";
  return fmt::format("{}, {} different tokens; {:.2f} bytes per token of the held-out text", data.tokenizer->kind(),
                     core::format_integer(data.tokenizer->vocab_size()),
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
  return fmt::format("{}, learning rate {:g} after {} of warmup, {}, weight decay {:g}, gradient clipped at {:g}", kind,
                     t.learning_rate, number_of(schedule.warmup_steps, "update"), shape, t.weight_decay, t.clip);
}

std::string evaluation_text(const CompareOptions& options, const HeldOutPlan& plan) {
  std::string windows = "non-overlapping windows";
  if (options.stride > 0) windows += fmt::format(", and windows that advance by {}", options.stride);
  if (const auto& interpolation = options.interpolation) {
    const bool is_linear = interpolation->rotary == RotaryScaling::linear;
    const std::string factor =
        interpolation->dynamic ? "length / training length" : fmt::format("{:g}", interpolation->factor);
    windows += is_linear ? fmt::format(", methods with a formula also with positions divided by {}", factor)
                         : fmt::format(", rotary positions also scaled by {} ({})", factor,
                                       model::kRotaryScalings[static_cast<size_t>(interpolation->rotary)]);
  }
  if (!options.windowed.empty()) {
    windows += fmt::format(", {} also with a sliding window of the training length", names_of(options.windowed));
  }
  if (options.one_pass) windows += ", and one pass in which each target sees all preceding text";
  return fmt::format(
      "{}, over {} held-out tokens in {}, evenly spread over the files; the targets are the same at every "
      "length",
      windows, core::format_integer(plan.tokens), number_of(std::ssize(plan.blocks), "block"));
}

/// An update consists of whole blocks, so it may have fewer tokens than requested.
std::string training_text(const CompareOptions& options, int64_t tokens) {
  TrainOptions t = options.train;
  t.train_tokens = tokens;
  const int64_t update = training::blocks_per_update(t) * t.train_length;
  return fmt::format("{} tokens in {} of {}, in blocks of {}, in {}", t.steps() * update,
                     number_of(t.steps(), "update"), update, fmt::join(options.train_lengths, ", "),
                     name_of(t.precision));
}

std::string tuning_text(const CompareOptions& options, const std::vector<Tuning>& tunings) {
  if (tunings.empty()) {
    std::string text =
        "not tuned: all methods use the same learning rate, which may suit some methods better than others";
    for (const std::string& note : rate_notes(options)) text += ". " + note.substr(0, note.size() - 1);
    return text;
  }
  std::vector<std::string> parts;
  for (const Tuning& tuning : tunings) {
    parts.push_back(fmt::format("{}{} {:g}{}", name_of(tuning.method), tuning.task.empty() ? "" : " on " + tuning.task,
                                tuning.best(),
                                tuning.is_at_an_end() ? " (the lowest or highest rate tried, so a rate beyond it "
                                                        "may be better)"
                                                      : ""));
  }
  return fmt::format(
      "chosen learning rates: {}; the rates {:g} were tried, and scored on a held-out part of the training text or on "
      "new sequences of the task",
      fmt::join(parts, ", "), fmt::join(tunings.front().rates, ", "));
}

std::string seeds_text(const CompareOptions& options) {
  const uint64_t first = options.train.seed;
  if (options.seeds == 1) return fmt::format("{}", first);
  return fmt::format("{} to {}", first, first + static_cast<uint64_t>(options.seeds) - 1);
}

}  // namespace

std::vector<std::string> rate_notes(const CompareOptions& options) {
  std::vector<std::string> notes;
  for (const Position method : options.positions) {
    std::set<double> factors;
    const LanguageModelConfig config = model_config(options, method, options.train.train_length, nullptr);
    for (const model::ParameterSpec& spec : model::parameter_specs(config)) factors.insert(spec.rate_factor);
    factors.erase(1);
    if (factors.empty()) continue;
    notes.push_back(fmt::format("The position weights of {} have {:g} times the learning rate of the other weights.",
                                name_of(method), fmt::join(factors, " or ")));
  }
  return notes;
}

std::vector<std::pair<std::string, std::string>> report_settings(
    const CompareOptions& options, const LanguageModelConfig& model, const TrainingData& data,
    const std::string& corpus_name, const HeldOutPlan& plan, const std::vector<Tuning>& tunings) {
  std::vector<std::pair<std::string, std::string>> settings = {{"model", model_text(model.transformer)},
                                                               {"positions", positions_text(options, model)}};
  if (data.tokenizer) {
    settings.insert(settings.end(), {{"text", corpus_name},
                                     {"held out", data.split_rule},
                                     {"tokenizer", tokenizer_text(data)},
                                     {"training", training_text(options, options.train.train_tokens)}});
  }
  if (!options.tasks.empty()) {
    const int64_t warmup = task_training(options.train, options.task_tokens).schedule().warmup_steps;
    const int64_t sequences = training::blocks_per_update(options.train);
    const std::string how =
        options.task_share > 0
            ? fmt::format("in turn, in {} of the {} sequences of each update (of the shortest training length)",
                          rows_of_tasks(options.task_share, sequences), sequences)
            : "each: " + training_text(options, options.task_tokens);
    settings.emplace_back("tasks", fmt::format("{}; {}; the warmup has {}", fmt::join(options.tasks, ", "), how,
                                               number_of(warmup, "update")));
    settings.emplace_back("questions",
                          fmt::format("{} for each length and range of distances", options.task_questions));
  }
  const bool is_usual = data.tokenizer && options.task_share == 0;
  settings.emplace_back("optimizer",
                        optimizer_text(is_usual ? options.train : task_training(options.train, options.task_tokens)));
  settings.emplace_back("tuning", tuning_text(options, tunings));
  if (data.tokenizer) settings.emplace_back("evaluation", evaluation_text(options, plan));
  settings.emplace_back(options.seeds == 1 ? "seed" : "seeds", seeds_text(options));
  return settings;
}

}  // namespace alibi::comparison
