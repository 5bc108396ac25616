#include "compare/report_settings.h"

#include <fmt/format.h>

#include "report/format.h"

namespace alibi {
namespace {

std::string model_text(const TransformerConfig& model) {
  std::string text = fmt::format("{} layers, d_model {}, {} heads, feed-forward {}, {}", model.layers, model.d_model,
                                 model.heads, model.ffn_dim(), name_of(model.activation));
  return model.dropout > 0 ? text + fmt::format(", dropout {:g}", model.dropout) : text;
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

}  // namespace

std::vector<std::pair<std::string, std::string>> report_settings(const CompareOptions& options,
                                                                 const LanguageModelConfig& model,
                                                                 const TrainingData& data,
                                                                 const std::string& corpus_name,
                                                                 int64_t scored_tokens) {
  const TrainOptions& t = options.train;
  return {
      {"model", model_text(model.transformer)},
      {"text", corpus_name},
      {"held out", data.split_rule},
      {"tokenizer", tokenizer_text(data)},
      {"training", fmt::format("{} tokens in {} updates of {}, in blocks of {}, in {}", t.steps() * t.batch_tokens,
                               t.steps(), t.batch_tokens, t.length, name_of(t.precision))},
      {"optimizer", optimizer_text(t)},
      {"evaluation", fmt::format("non-overlapping windows over {} held-out tokens", scored_tokens)},
      {"seed", fmt::format("{}", t.seed)},
  };
}

}  // namespace alibi
