// alibi train: trains a language model on text.
#include "alibi/train.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "alibi/training_data.h"
#include "bench/ceilings.h"
#include "commands.h"
#include "compare/bigram.h"
#include "compare/held_out.h"
#include "core/check.h"
#include "core/files.h"
#include "evaluate/checks.h"
#include "evaluation_output.h"
#include "formats/json.h"
#include "model/own_folder.h"
#include "ranks.h"
#include "report/progress.h"
#include "report/summary.h"
#include "stop_signals.h"
#include "text/data_folder.h"
#include "train/batches.h"
#include "train/train_over.h"
#include "train_options.h"
#include "train_plan.h"

namespace alibi::cli {
namespace {

/// Options that control the command and are not settings of the run.
const std::vector<std::string> not_settings = {"config", "resume",         "overwrite", "plan", "ranks",
                                               "link",   "update-seconds", "download",  "help"};

/// Runs with fewer FLOPs than this start without first measuring the machine's best rate.
constexpr double kFlopsWorthMeasuring = 1e13;

/// Adds the settings from --config, or from the run to be resumed, to those of the command line.
void complete(TrainSettings& settings, const Command& command) {
  const bool resumes = command.given("--resume");
  check_usage(settings.resume.empty() || settings.model.empty() || settings.resume == settings.model,
              "[train] --resume names {} and --out names {}; give only one of them", settings.resume, settings.model);
  const std::string named = settings.resume.empty() ? settings.model : settings.resume;
  if (settings.config.empty() && resumes && (settings.texts.empty() || newest_checkpoint(named))) {
    settings.config = named + "/train.json";
  }
  if (!settings.config.empty()) command.read_options(settings.config, not_settings);
  if (!named.empty()) settings.model = named;  // train.json contains the folder's name at the time of the training
  check_usage(!settings.model.empty(), "[train] --out is missing; name the model folder to write");
  check_texts_of_ranks(settings.texts);
  check_usage(!settings.texts.empty(),
              "[train] TEXT is missing; give files or folders to train on, or - for standard input");
  std::error_code ignored;
  check_usage(
      !text::is_data_folder(settings.model) ||
          (settings.texts.size() == 1 && std::filesystem::equivalent(settings.texts.front(), settings.model, ignored)),
      "[--out] {} is a folder of tokens, whose tokenizer the model's would replace; choose another folder",
      settings.model);
}

/// With --from: refuses options that the model determines, and takes its tokenizer.
void complete_from(TrainSettings& settings, const Command& command) {
  if (settings.from.empty()) return;
  for (const char* other : {"--position", "--tokenizer", "--vocab-size", "--min-count", "--like"}) {
    check_usage(!command.given(other), "[train] --from takes this setting from the model; leave out {}", other);
  }
  check_usage(settings.shape.empty(),
              "[train] --from takes the shape and the position method from the model; leave out options that set them");
}

/// The tokenizer of a folder of tokens may be replaced by the model's, which is the same.
void check_out(const TrainSettings& settings) {
  std::set<std::string> names = model::own_file_names();
  names.insert({"train.json", "trained_on.json", "metrics.jsonl", "loss.svg", "tensorboard", "checkpoints"});
  check_output_folder(settings.model, "--out", text::is_data_folder(settings.model) ? std::set<std::string>() : names);
}

/// Checked before the text is read, because reading may take long.
void check_replaces_nothing(const TrainSettings& settings, bool resumes) {
  check_usage(!settings.overwrite || !resumes,
              "[train] --resume continues a run and --overwrite replaces it; choose one of them");
  if (!settings.overwrite && !(resumes && newest_checkpoint(settings.model))) check_folder_is_free(settings.model);
}

void say_where_it_goes_on(const std::string& model, int64_t step, bool finished) {
  if (step == 0) {
    say("{} contains no checkpoint; training starts from the beginning\n", model);
  } else if (finished) {
    say("{}: training is complete since update {}\n", model, core::format_integer(step));
  } else {
    say("Resuming after {} updates\n", core::format_integer(step));
  }
  flush_output();
}

constexpr std::chrono::seconds kBetweenLines(10);

/// Rewrites a line on the terminal. Without a terminal, prints a line to standard error every few seconds. Losses on
/// held-out text are results, so they go to standard output.
class TrainDisplay {
 public:
  /// `flops_per_token` and the machine's best rate in FLOP/s give the utilization, which is not shown if the rate is 0.
  TrainDisplay(double flops_per_token, double ceiling);

  void update(const TrainStatus& status);

 private:
  double flops_per_token_, ceiling_;
  report::Progress progress_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

TrainDisplay::TrainDisplay(double flops_per_token, double ceiling)
    : flops_per_token_(flops_per_token), ceiling_(ceiling), progress_(stderr) {
  progress_.begin("train");
}

void TrainDisplay::update(const TrainStatus& status) {
  // The most important fields come first, because a narrow terminal truncates the line.
  std::string fields =
      fmt::format("loss {:.3f}  perplexity {}  {} tokens/s", status.loss,
                  core::format_perplexity(std::exp(status.loss)), core::format_count(status.tokens_per_second));
  if (status.step < status.steps) fields += fmt::format("  {} left", core::format_duration(status.seconds_left));
  fields += fmt::format("  rate {:.3g}  norm {:.3g}", status.learning_rate, status.gradient_norm);
  if (ceiling_ > 0) {
    fields += fmt::format("  {:.0f} % of peak", 100 * status.tokens_per_second * flops_per_token_ / ceiling_);
  }
  fields += fmt::format("  {}", core::format_bytes(status.memory_bytes));

  const auto now = std::chrono::steady_clock::now();
  const bool is_due = !progress_.active() && now - last_line_ >= kBetweenLines;
  if (is_due || status.valid_loss) progress_.clear();
  if (is_due) {
    last_line_ = now;
    say_progress(fmt::format("update {} of {}  {}", core::format_integer(status.step),
                             core::format_integer(status.steps), fields));
  }
  if (status.valid_loss) {
    say("update {}: held-out loss {:.4f}, perplexity {}{}\n", core::format_integer(status.step), *status.valid_loss,
        core::format_perplexity(std::exp(*status.valid_loss)), status.best ? ", the best so far" : "");
  }
  if (status.valid_loss) flush_output();
  // 0, because the remaining time is already among the fields.
  progress_.update(static_cast<double>(status.step) / static_cast<double>(status.steps), fields, 0);
}

TrainResult train_with_display(LanguageModel& model, const TrainingData& data, const TrainSettings& settings,
                               const TrainOptions& options, bool resumes) {
  const double flops = training_flops_per_token(model.config(), options.train_length, data.train.tokens);
  const bool is_long = flops * static_cast<double>(options.train_tokens) > kFlopsWorthMeasuring;
  const DType type = options.precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  const double ceiling = is_long && is_first_rank() ? bench::MatmulCeilings(type).best() : 0;
  reset_peak_resident_bytes();

  TrainDisplay display(flops, ceiling);
  const StopSignals signals(
      is_first_rank() ? "finishing the update and saving; a second signal ends the process immediately" : "", true);
  TrainRun run;
  settings.run.apply_to(run);
  run.folder = settings.model;
  run.resume = resumes;
  run.overwrite = settings.overwrite;
  run.settings = formats::to_text(settings_json(settings, options, run, model.config()));
  run.valid = data.valid.tokens;
  run.on_resume = [&](int64_t step, bool finished) { say_where_it_goes_on(settings.model, step, finished); };
  run.on_step = [&](const TrainStatus& status) { display.update(status); };
  run.on_checkpoint = [&](int64_t step) {
    if (world() == nullptr) return;
    say("Checkpoint of update {}\n", core::format_integer(step));  // a killed job does not name it
    flush_output();
  };
  run.on_warning = report_warning;
  run.should_stop = [] { return StopSignals::received() != 0; };
  wait_for_ranks();  // all have read the folder, which rank 0 now changes
  return training::train_over(world(), model, data.train.tokens, options, run);
}

/// After Ctrl-C, the exit code of one process is that of shells. A job scheduler's signal means that the job should be
/// queued again. Another rank may have received the signal.
Interrupted stopped() {
  const int signal = StopSignals::received();
  return {signal, signal == SIGINT && world() == nullptr ? 128 + signal : kGoOn};
}

void report_training(const TrainResult& trained, int64_t peak_bytes) {
  say("{} tokens in {}, {} tokens/s, last loss {:.4f}, peak memory {}\n", core::format_integer(trained.tokens),
      core::format_duration(trained.seconds), core::format_count(trained.tokens_per_second), trained.loss.back(),
      core::format_bytes(peak_bytes));
  if (trained.end == TrainEnd::no_gain) {
    say("Stopped after {} updates because the held-out loss no longer fell\n", core::format_integer(trained.steps));
  }
  if (trained.weights_step != trained.steps) {
    say("The weights are the best ones, of update {}\n", core::format_integer(trained.weights_step));
  }
}

Evaluation evaluate_trained(const LanguageModel& model, std::span<const int32_t> tokens, const EvaluateOptions& options,
                            int64_t step) {
  try {
    return evaluate_with_progress(model, tokens, options);
  } catch (const NotFiniteError& error) {
    fail("[train] the model after update {} cannot score the held-out text, so it was not saved: {}", step,
         error.what());
  }
}

nlohmann::ordered_json training_json(const TrainResult& trained, int64_t peak_bytes) {
  nlohmann::ordered_json json = {{"tokens", trained.tokens},
                                 {"steps", trained.steps},
                                 {"seconds", trained.seconds},
                                 {"tokens_per_second", trained.tokens_per_second},
                                 {"peak_bytes", peak_bytes},
                                 {"resumed_step", trained.resumed_step},
                                 {"weights_step", trained.weights_step},
                                 {"loss", trained.loss}};
  for (const TrainEvaluation& evaluation : trained.evaluations) {
    json["held_out"].push_back({{"step", evaluation.step}, {"nll", evaluation.loss}});
  }
  return json;
}

void plan(TrainSettings& settings, const Command& command) {
  if (!settings.config.empty()) command.read_options(settings.config, not_settings);
  check_usage(!settings.epochs,
              "[train] --plan does not read the text, so it cannot use --epochs; give --train-tokens");
  settings.apply();
  TrainOptions options = train_options(settings);
  if (!settings.train.has("shards")) options.shards = settings.ranks;
  std::optional<int> tokens;
  if (settings.tokenizer.vocab_size > 0) {
    tokens = static_cast<int>(std::min<int64_t>(settings.tokenizer.vocab_size, INT32_MAX));
  }
  show_plan(settings, recipe_of(settings).config(options.train_length, tokens), options);
}

void run_train(TrainSettings& settings, const Command& command) {
  if (settings.plan) {
    refuse_ranks(command.full_name() + " --plan");
    return plan(settings, command);
  }
  check_usage(!command.given("--ranks") && !command.given("--link") && !command.given("--update-seconds"),
              "[train] --ranks, --link and --update-seconds belong to --plan; mpirun sets the number of ranks");
  join_ranks(command);
  complete(settings, command);
  complete_from(settings, command);
  check_out(settings);
  settings.apply();
  const bool resumes = command.given("--resume");
  check_replaces_nothing(settings, resumes);
  if (resumes) {
    const std::optional<CheckpointInfo> found = newest_checkpoint(settings.model);
    if (found) settings.resumed = found->precision;
  }
  const std::string from = settings.from;
  if (const auto newest = resumes && !from.empty() ? newest_checkpoint(settings.model) : std::nullopt) {
    settings.from =
        newest->folder
            .string();  // continues with the shape in the checkpoint, even if the original model has changed or is gone
  }
  TrainOptions options = train_options(settings);
  const ModelRecipe recipe = recipe_of(settings);
  recipe.config(options.train_length);  // throws an Error if the configuration is invalid, before the text is read
  hold_output_folder(settings.model);

  const TrainingData data = with_progress([&](const TextProgress& progress) {
    return recipe.read_text(settings.texts, settings.valid, progress, settings.field);
  });
  warn_of_skipped(data.files);
  const auto text_tokens = static_cast<int64_t>(data.train.tokens.size());
  if (settings.epochs) options = train_options(settings, text_tokens);
  check_same_machines();
  options.precision = static_cast<Precision>(of_first_rank(static_cast<int64_t>(options.precision)));
  options.check_text(text_tokens);  // checked before a model for this length is created
  LanguageModel model = recipe.model(options.train_length, data.tokenizer, settings.seed);
  settings.from = from;
  say("{} parameters, {} bytes to train on, {} held out\n", core::format_integer(model.parameter_count()),
      core::format_integer(data.train_bytes), core::format_integer(data.valid_bytes));
  // Only whole updates of whole sequences are run, so the tokens may be fewer or more than --train-tokens.
  const int64_t steps = options.steps(), update = training::blocks_per_update(options) * options.train_length;
  say("{} update{} of up to {} tokens, {:.3g} epochs\n", core::format_integer(steps), steps == 1 ? "" : "s",
      core::format_integer(update), static_cast<double>(steps * update) / static_cast<double>(text_tokens));
  say_precision(options.precision, settings.train, settings.resumed);
  if (world() != nullptr) {
    const int64_t shards = options.shards * options.sequence_ranks, each = shards / world()->size();
    say("{} ranks, each with {} of {} shards, {} threads\n", world()->size(),
        shards % world()->size() == 0 ? fmt::format("{}", each) : fmt::format("up to {}", each + 1), shards, threads());
  }
  flush_output();
  if (!is_first_rank()) {
    // It has the weights that rank 0 evaluates and saves.
    if (train_with_display(model, data, settings, options, resumes).end == TrainEnd::asked) throw stopped();
    return;
  }
  if (const std::string warning = held_out_warning(data); !warning.empty()) report_warning(warning);

  const TrainResult trained = train_with_display(model, data, settings, options, resumes);
  const int64_t peak_bytes = peak_resident_bytes();
  if (trained.end == TrainEnd::asked) {
    say("Stopped after {} of {} updates. To continue, run: alibi train --resume {}\n",
        core::format_integer(trained.steps), core::format_integer(options.steps()), settings.model);
    throw stopped();
  }
  model.release_training_memory();
  report_training(trained, peak_bytes);

  EvaluateOptions evaluate_options;
  evaluate_options.length = options.train_length;
  evaluate_options.mask_rate = options.mask_rate;
  if (options.eval_tokens > 0) {
    evaluate_options.segments =
        evaluation::spread_blocks(std::ssize(data.valid.tokens), options.eval_tokens, options.train_length);
  }
  const Evaluation evaluation = evaluate_trained(model, data.valid.tokens, evaluate_options, trained.weights_step);
  model.save(settings.model);  // saved only now, because the folder may contain an earlier model
  const std::vector<Segment>& scored = evaluate_options.segments;
  const int64_t bytes =
      scored_bytes(evaluation, comparison::bytes_of(*data.tokenizer, data.valid.tokens, data.valid_bytes, scored),
                   scored.empty() ? std::ssize(data.valid.tokens) : evaluation::size_of(scored));
  say("held out: perplexity {}, {:.4f} bits per byte at length {}\n", core::format_perplexity(evaluation.perplexity()),
      evaluation.bits_per_byte(bytes), evaluation.length);
  double bigram_nll =
      std::numeric_limits<double>::quiet_NaN();  // for decoders only, because an encoder also sees the following tokens
  if (model.config().transformer.attention.causal) {
    bigram_nll = comparison::bigram_nll(data.train.tokens, data.valid.tokens, scored, data.tokenizer->vocab_size());
  }
  if (report::is_near_bigram(evaluation.nll(), bigram_nll)) {
    say("The model has not learned yet: a table of token pairs, counted on the training text, has perplexity {}. "
        "Train longer, with more --train-tokens.\n",
        core::format_perplexity(std::exp(bigram_nll)));
  }
  say("Model: {}\n", settings.model);

  settings.write_json({{"model", settings.model},
                       {"position", name_of(model.config().transformer.position)},
                       {"preset", settings.preset},
                       {"parameters", model.parameter_count()},
                       {"train_length", options.train_length},
                       {"seed", settings.seed},
                       {"threads", threads()},
                       {"tokenizer", {{"kind", data.tokenizer->kind()}, {"vocab_size", data.tokenizer->vocab_size()}}},
                       {"corpus", {{"train_bytes", data.train_bytes}, {"valid_bytes", data.valid_bytes}}},
                       {"skipped", skipped_json(data.files)},
                       {"train", training_json(trained, peak_bytes)},
                       {"bigram_nll", bigram_nll},
                       {"eval", nlohmann::ordered_json::array({evaluation_json(evaluation, bytes)})}});
}

}  // namespace

void add_train(CLI::App& app) {
  auto settings = std::make_shared<TrainSettings>();
  Command command(app, "train", "Train a language model on text");
  add_train_options(command, *settings);
  command.examples(
      "  alibi train novels/ -o model/\n"
      "  alibi train novels/train --valid novels/valid -o model/ --preset small --train-length 512 --epochs 2\n"
      "  alibi train novels/ -o model/ --eval-steps 200 --patience 5 --checkpoint-steps 100\n"
      "  alibi train novels/ -o model/ --alibi-slopes 0.5,0.25,0.1,0.02 --slope-training learned\n"
      "  alibi train novels/ -o encoder/ --no-causal\n"
      "  alibi train letters/ -o tuned/ --from model/ --learning-rate 0.0005 --train-tokens 200k\n"
      "  alibi train --preset wikitext103 --plan\n"
      "  alibi train --preset large --plan --ranks 8 --link 10Gbit\n"
      "  mpirun -np 4 alibi train tokens/ -o model/ --shards 8 --resume\n"
      "  alibi train --resume model/\n"
      "  alibi train --config model/train.json -o other/ --learning-rate 0.001\n"
      "  zcat *.gz | alibi train - -o model/ --train-tokens 5M");
  command.runs_over_ranks([settings, command] { run_train(*settings, command); });
}

}  // namespace alibi::cli
