#include "train_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "alibi/runtime.h"
#include "common.h"
#include "core/format.h"
#include "output.h"
#include "report/progress.h"
#include "train/rank_plan.h"

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

/// The costs of a rank, and the time of all.
nlohmann::ordered_json show_ranks(const TrainSettings& settings, const LanguageModelConfig& config,
                                  const TrainOptions& options, const TrainPlan& alone, double seconds) {
  const auto updates = static_cast<double>(alone.updates);
  const training::RankPlan plan =
      training::plan_ranks(config, options, static_cast<int>(settings.ranks), settings.link, seconds / updates);
  const int64_t bytes =
      alone.weights + alone.activations + alone.workspace + plan.gradients + plan.optimizer + plan.messages;
  const double ideal = seconds / updates / static_cast<double>(settings.ranks);
  say("\n{} ranks on hosts like this one, {} shards:\n", settings.ranks, options.shards);
  show_bytes("gradients", plan.gradients, "of the shards of a rank");
  show_bytes("optimizer", plan.optimizer, "a rank's part");
  show_bytes("messages", plan.messages, "of the largest layer");
  show_bytes("in all", bytes, "for each rank, with weights, activations and workspace");
  show_bytes("traffic", plan.sent, "sent by each rank in each update");
  say("An update takes {:.3g} s: {:.3g} s of computing, {:.3g} s for gradients, {:.3g} s for weights; {:.0f} % of "
      "ideal\n",
      plan.seconds(), plan.compute, plan.gradients_alone, plan.weights_exchange, 100 * ideal / plan.seconds());
  say("Estimated time of the run: {}\n", core::format_duration(plan.seconds() * updates));
  return {{"ranks", settings.ranks},
          {"shards", options.shards},
          {"bytes",
           {{"gradients", plan.gradients}, {"optimizer", plan.optimizer}, {"messages", plan.messages}, {"all", bytes}}},
          {"sent_per_update", plan.sent},
          {"seconds_per_update",
           {{"compute", plan.compute},
            {"gradients", plan.gradients_alone},
            {"weights", plan.weights_exchange},
            {"all", plan.seconds()}}},
          {"share_of_ideal", ideal / plan.seconds()},
          {"seconds", plan.seconds() * updates}};
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
  const double seconds =
      settings.update_seconds ? *settings.update_seconds * static_cast<double>(plan.updates) : timed(config, options);
  constexpr double year = 365.25 * 24 * 3600;
  const std::string time =
      seconds < year ? core::format_duration(seconds) : fmt::format("{} years", core::format_ratio(seconds / year));
  say("Estimated time on this machine: {}, {} tokens/s (from the {}, without evaluation and checkpoints)\n", time,
      core::format_count(static_cast<double>(plan.tokens) / seconds),
      settings.update_seconds ? "given time of an update" : "measured time of one layer");
  nlohmann::ordered_json json = {{"preset", settings.preset},
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
                                 {"seconds", seconds}};
  if (settings.ranks > 1) json["ranks"] = show_ranks(settings, config, options, plan, seconds);
  settings.write_json(json);
}

}  // namespace alibi::cli
