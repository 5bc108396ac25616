// alibi compare: trains position methods on short sequences and evaluates them on longer ones.
#include "alibi/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "alibi/results.h"
#include "commands.h"
#include "common.h"
#include "compare/compare_over.h"
#include "compare/held_out.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "numbers.h"
#include "ranks.h"
#include "report/json.h"
#include "report/progress.h"
#include "report/summarize.h"
#include "report/tables.h"
#include "stop_signals.h"

namespace alibi::cli {
namespace {

std::vector<std::string> default_positions() {
  std::vector<std::string> names;
  for (const Position method : CompareOptions().positions) names.emplace_back(name_of(method));
  return names;
}

/// Absent or empty values are taken from the preset.
struct CompareCommand : CommonOptions {
  std::vector<std::string> texts, valid;
  std::vector<std::string> positions = default_positions();
  std::vector<int64_t> lengths, train_lengths;
  std::vector<std::string> tasks, windowed;
  std::string preset = "tiny";
  std::string out = "alibi-compare", resume, tune, field;
  int64_t seeds = 1, timing_rounds = 3;
  std::optional<int64_t> stride, eval_tokens, sample_tokens, task_tokens;
  int64_t task_questions = CompareOptions().task_questions;
  std::optional<double> task_share;
  bool overwrite = false, one_pass = false;
  std::optional<Interpolation> interpolation;
  TokenizerChoice tokenizer;
  std::optional<double> dropout;
  GivenOptions<LanguageModelConfig> model;
  GivenOptions<TrainOptions> train;
};

/// Options that control the command and are not settings of the comparison.
const std::vector<std::string> kNotSettings = {"resume", "overwrite", "out", "json", "threads", "download", "help"};

/// With --resume, reads the options of the folder's comparison. The command line may add to them.
void complete(CompareCommand& options, const Command& command) {
  if (!command.given("--resume")) return;
  check_usage(!options.overwrite,
              "[compare] --resume continues a comparison and --overwrite replaces it; choose one of them");
  check_usage(options.resume.empty() || !command.given("--out") || options.resume == options.out,
              "[compare] --resume names {} and --out names {}; give only one of them", options.resume, options.out);
  if (!options.resume.empty()) options.out = options.resume;
  const std::filesystem::path settings = std::filesystem::path(options.out) / "settings.json";
  check_usage(core::path_exists(settings), "[compare] {}: there is no comparison to continue ({} is missing)",
              options.out, settings.string());
  command.read_options(settings.string(), kNotSettings);
}

/// The options of the command line, stored for --resume.
std::string settings_of(const Command& command) {
  nlohmann::ordered_json settings = command.given_options(kNotSettings);
  for (const char* key : {"text", "valid", "like"}) {
    if (settings.contains(key)) settings[key] = absolute_paths(settings[key].get<std::vector<std::string>>());
  }
  return formats::to_text(settings);
}

/// Rates such as "0.001,0.002". If none are given: 0.5, 1, 2 and 4 times the usual rate.
std::vector<double> rates_to_try(const std::string& words, double usual) {
  std::vector<double> rates;
  if (words.empty()) {
    for (const double factor : {0.5, 1.0, 2.0, 4.0}) rates.push_back(factor * usual);
  }
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    double rate = 0;
    const std::string wrong = read_number(word, {.above = 0}, rate);
    check_usage(wrong.empty(), "[--tune] {}", wrong);
    rates.push_back(rate);
  }
  return rates;
}

CompareOptions to_library(const CompareCommand& options, bool tunes) {
  CompareOptions compare = compare_defaults(options.preset);
  compare.texts = options.texts;
  compare.valid = options.valid;
  compare.field = options.field;
  compare.tokenizer = options.tokenizer;
  compare.positions.clear();
  for (const std::string& name : options.positions) compare.positions.push_back(position_from(name));
  for (const std::string& name : options.windowed) compare.windowed.push_back(position_from(name));
  compare.seeds = options.seeds;
  compare.lengths = options.lengths;
  compare.train_lengths = options.train_lengths;
  compare.stride = options.stride.value_or(compare.stride);
  compare.one_pass = options.one_pass;
  const bool changes = options.interpolation && (options.interpolation->dynamic || options.interpolation->factor != 1);
  if (changes) compare.interpolation = options.interpolation;
  compare.overwrite = options.overwrite;
  const auto continued = options.overwrite ? std::nullopt : compared_precision(options.out);
  compare.train = train_options(options.preset, options.train, options.seed, {}, continued);
  say_precision(compare.train.precision, options.train, continued);
  for (const auto& [name, value] : options.model.values()) compare.model.set(name, value);
  if (tunes) compare.tune_rates = rates_to_try(options.tune, compare.train.learning_rate);
  if (options.dropout) compare.dropout = static_cast<float>(*options.dropout);
  compare.eval_tokens = options.eval_tokens.value_or(compare.eval_tokens);
  compare.sample_tokens = options.sample_tokens.value_or(compare.sample_tokens);
  compare.tasks = options.tasks;
  compare.task_tokens = options.task_tokens.value_or(compare.task_tokens);
  compare.task_questions = options.task_questions;
  compare.task_share = options.task_share.value_or(compare.task_share);
  compare.timing_rounds = options.timing_rounds;
  compare.out = options.out;
  compare.command = command_line();
  return compare;
}

void show(const CompareStatus& status, report::Progress& progress, std::string& label) {
  std::string now = status.phase;
  if (!status.method.empty()) {
    if (!status.task.empty()) now += " " + status.task;
    now +=
        status.runs == 0 ? " " + status.method : fmt::format(" {} {}/{}", status.method, status.run + 1, status.runs);
  }
  if (now != label) {
    label = now;
    progress.begin(label);
  }
  std::string fields;
  if (status.phase == "train" || status.phase == "tune") {
    fields =
        fmt::format("loss {:.3f}  {} tokens/s", status.train.loss, core::format_count(status.train.tokens_per_second));
  } else if (status.phase == "evaluate") {
    fields = fmt::format("at length {}", status.length);
  }
  progress.update(status.fraction, fields, status.seconds_left);
}

/// The report shows the other runs, but the exit code must tell that some results are missing.
void check_none_diverged(const CompareResults& results) {
  std::vector<std::string> diverged;
  for (const RunResults& run : report::runs_of(results)) {
    if (run.diverged.empty()) continue;
    diverged.push_back(fmt::format("{}{} from seed {}: {}", run.method,
                                   run.task.name.empty() ? "" : " on " + run.task.name, run.seed, run.diverged));
  }
  check(diverged.empty(), "[compare] {} of {} runs diverged, expected none: {}", diverged.size(), results.runs_done(),
        fmt::join(diverged, "; "));
}

void run_compare(CompareCommand& options, const Command& command) {
  join_ranks(command);
  complete(options, command);
  check_output_folder(options.out, "--out",
                      {"results.json", "report.html", "figure.svg", "figure.csv", "attention.svg", "map.svg",
                       "compare.json", "settings.json", "models"});
  check_texts_of_ranks(options.texts);
  options.apply();
  CompareOptions asked = to_library(options, command.given("--tune"));
  asked.settings = settings_of(command);
  CompareResults results;
  {
    const StopSignals signals;
    asked.should_stop = [] { return StopSignals::received() != 0; };
    report::Progress progress(stderr, lines_without_terminal());
    asked.on_warning = [&](std::string_view message) {
      progress.clear();
      report_warning(message);
    };
    std::string label;
    results =
        comparison::compare_over(world(), asked, [&](const CompareStatus& status) { show(status, progress, label); });
    // On a rank other than 0, `results` has the runs of that rank. A signal of any rank stops all.
    int signal = StopSignals::received();
    if (world() != nullptr) {
      const std::vector<double> all = ranks::all_gather(*world(), signal);
      signal = static_cast<int>(*std::max_element(all.begin(), all.end()));
      std::vector<char> is_done{results.runs_done() == results.runs_planned};
      ranks::broadcast(*world(), ranks::Tag::control, ranks::bytes_of(is_done));
      if (is_done.front() != 0) signal = 0;
    }
    if (signal != 0 && results.runs_done() < results.runs_planned) {
      progress.clear();
      say("Stopped after {} of {} runs. To continue, repeat the command or run: alibi compare --resume {}\n",
          results.runs_done(), results.runs_planned, options.out);
      throw Interrupted{signal, code_of_stopped(signal)};
    }
  }
  if (!is_first_rank()) return;
  say("{}\n", report::comparison_text(results));
  say("Report: {}\n", (std::filesystem::path(options.out) / "report.html").string());
  if (!options.json.empty()) options.write_json(report::to_json(results));
  check_none_diverged(results);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareCommand>();
  options->field = CompareOptions().field;
  Command command(app, "compare",
                  "Train position methods on the same batches at a short length and evaluate them at longer ones");
  command.texts(options->texts, false,
                "Text files, folders of text files, a folder written by `alibi tokenize`, or - for standard input "
                "[C++ standard library headers]");
  command.list("--positions", options->positions,
               fmt::format("Methods (or a+b): {}", fmt::join(position_names(), ", ")), position_names());
  command.count("--seeds", options->seeds, "Number of runs per method, with consecutive seeds from --seed on");
  command.counts("--train-lengths", options->train_lengths,
                 "Training lengths in tokens, instead of --train-length; each method is trained at each of them");
  command.counts("--lengths", options->lengths,
                 "Evaluation lengths in tokens [1, 1.25, 1.5, 2, 3, 4, 6, 8 and 16 times the training length]");
  command.count("--stride", options->stride,
                "Also evaluate with a sliding window that advances by N tokens [non-overlapping windows only]");
  command.flag("--one-pass", options->one_pass,
               "Also evaluate in one pass over the whole held-out text, where each token sees all preceding text");
  add_interpolation(command, options->interpolation, "Also evaluate with positions divided by X");
  command.list("--windowed", options->windowed,
               "Also evaluate these methods with a sliding window of the training length, without another training",
               position_names());
  const std::string scored = training::default_among_presets([](const std::string& name) {
    return std::to_string(comparison::tokens_to_score(name, 16 * training_defaults(name).train_length));
  });
  command.count("--eval-tokens", options->eval_tokens,
                fmt::format("Number of held-out tokens to score, in blocks spread evenly over the text [{}]", scored));
  command.count(
      "--sample-tokens", options->sample_tokens,
      "Number of tokens that each model generates as a sample (0 generates none) [4 times the training length]", 0);
  command.list("--tasks", options->tasks,
               fmt::format("Also compare on tasks that need far tokens: {}; without a text, only on these",
                           fmt::join(task_names(), ", ")),
               task_names());
  command.count("--task-tokens", options->task_tokens, "Number of tokens to train on for each task [--train-tokens]");
  command.count("--task-questions", options->task_questions,
                "Number of questions for each length and each range of distances");
  command.number("--task-share", options->task_share,
                 "Train models on text and tasks at once: share of the sequences that belongs to the tasks [one model "
                 "for each task]",
                 {.above = 0, .below = 1});
  command.count("--timing-rounds", options->timing_rounds, "Number of timing rounds after training (0 disables timing)",
                0);
  command.text("-o,--out", options->out, "DIR",
               "Output folder for the report and the models; the same command continues an interrupted comparison");
  command.optional_text("--resume", options->resume, "DIR",
                        "Continue the comparison in this folder, or in --out if none is named");
  command.flag("--overwrite", options->overwrite, "Replace the comparison in the output folder");
  command.group(training::OptionGroup::text);
  add_valid(command, options->valid);
  add_field(command, options->field);
  add_preset(command, options->preset);
  add_tokenizer(command, options->tokenizer);
  add_dropout(command, options->dropout);
  options->train.add_to(command, training::OptionGroup::text);
  command.exclude("--train-lengths", "--train-length");
  command.group("Model and position");
  options->model.add_to(command, "Model and position");
  command.group(training::OptionGroup::optimizer);
  options->train.add_to(command, training::OptionGroup::optimizer);
  command.optional_text(
      "--tune", options->tune, "RATES",
      "Learning rates to try for each method on part of the training text and of each task [0.5, 1, 2 and 4 "
      "times --learning-rate]");
  options->add_to(command);
  command.rare("--min-count");
  command.examples(
      "  alibi compare\n"
      "  alibi compare novels/train --valid novels/valid --out novels-report\n"
      "  alibi compare novels/ --tokenizer bpe --vocab-size 2000 --warmup-steps 20\n"
      "  alibi compare novels/ --seeds 3 --positions alibi,sinusoidal,rotary\n"
      "  alibi compare novels/ --positions alibi,sinusoidal --train-lengths 128,256,512 --seeds 3\n"
      "  alibi compare novels/ --stride 64 --interpolate dynamic --one-pass\n"
      "  alibi compare novels/ --positions alibi,rotary --windowed rotary\n"
      "  alibi compare --tasks recall,flipflop,copy --positions alibi,rotary --train-length 64 --learning-rate 0.002\n"
      "  alibi compare novels/ --tasks recall,passkey --task-share 0.25 --seeds 3\n"
      "  alibi compare --resume alibi-compare\n"
      "  alibi compare notes/ --positions alibi,learned --train-length 64 --lengths 64,256,1024 --train-tokens 2M");
  command.runs_over_ranks([options, command] { run_compare(*options, command); });
}

}  // namespace alibi::cli
