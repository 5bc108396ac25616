#include "train_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "alibi/runtime.h"
#include "common.h"
#include "core/format.h"
#include "output.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

void show_bytes(const char* name, int64_t bytes, const char* what) {
  say("  {:<12} {:>9}  {}\n", name, core::format_bytes(bytes), what);
}

double timed(const LanguageModelConfig& config, const TrainOptions& options) {
  report::Progress progress(stderr, lines_without_terminal());
  progress.begin("timing a layer");
  progress.update(0);
  return estimate_seconds(config, options, [&](double fraction) { progress.update(fraction); });
}

/// Memory of the program after its first matrix product, because oneDNN generates its code then.
int64_t program_bytes() {
  TrainOptions least = training_defaults("tiny");
  least.batch_tokens = least.micro_batch_tokens = least.train_length;
  estimate_seconds(preset("tiny"), least);
  reset_peak_resident_bytes();
  return peak_resident_bytes();
}

}  // namespace

void show_plan(const TrainSettings& settings, const LanguageModelConfig& config, const TrainOptions& options) {
  const TransformerConfig& t = config.transformer;
  const TrainPlan plan = plan_training(config, options);
  const int64_t program = program_bytes();
  say("{}: {} parameters, {} layers of {}, {} heads, feed-forward {}, vocabulary {}, {}\n", settings.preset,
      core::format_integer(plan.parameters), t.layers, t.d_model, t.attention.heads, t.ffn_dim(),
      core::format_integer(config.vocab_size), name_of(t.position));
  say("{} tokens in {} updates of {}, in blocks of {}, in {}\n\n", core::format_integer(plan.tokens),
      core::format_integer(plan.updates), core::format_integer(plan.tokens / plan.updates), options.train_length,
      name_of(options.precision));
  say("Memory, not counting the text:\n");
  show_bytes("weights", plan.weights, options.precision == Precision::bf16 ? "float32 and bfloat16 copies" : "float32");
  show_bytes("gradients", plan.gradients, "float32");
  show_bytes("optimizer", plan.optimizer, name_of(options.optimizer));
  show_bytes("activations", plan.activations, "kept from the forward to the backward pass; --recompute reduces them");
  show_bytes("workspace", plan.workspace, "temporary memory of both passes; a smaller --micro-batch-tokens reduces it");
  show_bytes("program", program, "the program and its libraries");
  show_bytes("in all", plan.bytes() + program, "");
  say("\n{}{} FLOPs per token{}\n", config.adaptive ? "at most " : "", core::format_count(plan.flops_per_token),
      config.adaptive ? " (if all tokens were in the band that costs most)" : "");
  flush_output();  // the next measurement takes a while
  const double seconds = timed(config, options);
  constexpr double year = 365.25 * 24 * 3600;
  const std::string time =
      seconds < year ? core::format_duration(seconds) : fmt::format("{} years", core::format_ratio(seconds / year));
  say("Estimated time on this machine: {}, {} tokens/s (from the measured time of one layer, without evaluation "
      "and checkpoints)\n",
      time, core::format_count(static_cast<double>(plan.tokens) / seconds));
  settings.write_json({{"preset", settings.preset},
                       {"position", name_of(t.position)},
                       {"parameters", plan.parameters},
                       {"precision", name_of(options.precision)},
                       {"threads", threads()},
                       {"tokens", plan.tokens},
                       {"updates", plan.updates},
                       {"flops_per_token", plan.flops_per_token},
                       {"bytes",
                        {{"weights", plan.weights},
                         {"gradients", plan.gradients},
                         {"optimizer", plan.optimizer},
                         {"activations", plan.activations},
                         {"workspace", plan.workspace},
                         {"program", program},
                         {"all", plan.bytes() + program}}},
                       {"seconds", seconds}});
}

}  // namespace alibi::cli
