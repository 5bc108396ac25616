// alibi compare: train every position method short, test it long.
#include "alibi/compare.h"

#include <fmt/format.h>

#include <memory>

#include "alibi/results.h"
#include "commands.h"
#include "common.h"
#include "report/json.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/verdict.h"

namespace alibi::cli {
namespace {

/// 0 and empty: what the preset says.
struct CompareCommand : CommonOptions {
  std::vector<std::string> texts, valid;
  std::vector<std::string> methods = {"alibi", "sinusoidal", "rotary", "t5"};
  std::vector<int64_t> lengths;
  std::string preset = "tiny";
  std::string out = "alibi-compare";
  int64_t eval_tokens = 0, sample_tokens = -1;
  TokenizerChoice tokenizer;
  double dropout = -1;
  GivenOptions<TrainOptions> train;
};

CompareOptions to_library(const CompareCommand& options) {
  CompareOptions compare = compare_defaults(options.preset);
  compare.texts = options.texts;
  compare.valid = options.valid;
  compare.tokenizer = options.tokenizer;
  compare.methods.clear();
  for (const std::string& name : options.methods) compare.methods.push_back(position_from(name));
  compare.lengths = options.lengths;
  compare.train = train_options(options.preset, options.train, options.seed);
  if (options.dropout >= 0) compare.dropout = static_cast<float>(options.dropout);
  if (options.eval_tokens > 0) compare.eval_tokens = options.eval_tokens;
  compare.sample_tokens = options.sample_tokens;
  compare.out = options.out;
  compare.command = command_line();
  return compare;
}

void show(const CompareStatus& status, Progress& progress, std::string& label) {
  const std::string now = status.method.empty() ? status.phase : fmt::format("{} {}", status.phase, status.method);
  if (now != label) {
    label = now;
    progress.begin(label);
  }
  std::string fields;
  if (status.phase == "train") {
    fields = fmt::format("loss {:.3f}  {} tokens/s", status.train.loss, format_count(status.train.tokens_per_second));
  } else if (status.phase == "evaluate") {
    fields = fmt::format("at length {}", status.length);
  }
  progress.update(status.fraction, fields, status.seconds_left);
}

void run_compare(CompareCommand& options) {
  check_output_folder(options.out, "--out");
  options.apply();
  CompareResults results;
  {
    Progress progress(stderr, lines_without_terminal());
    std::string label;
    results = compare(to_library(options), [&](const CompareStatus& status) { show(status, progress, label); });
  }
  say("{}\n{}\n\n", comparison_table(results), verdict(results));
  say("Report: {}\n", (std::filesystem::path(options.out) / "report.html").string());
  if (!options.json.empty()) options.write_json(to_json(results));
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareCommand>();
  Command command(app, "compare",
                  "Train position methods at a short length on the same batches, test each at longer ones");
  command.texts(options->texts, false,
                "Text files, folders, - for standard input, or a folder of `alibi tokenize` [the C++ headers of this "
                "machine]");
  command.list("--methods", options->methods, "Of alibi, sinusoidal, rotary, t5, learned, none");
  command.choices("--methods", position_names());
  command.counts("--lengths", options->lengths,
                 "Lengths to test at [1, 1.25, 1.5, 2, 3, 4, 6, 8 and 16 times the training length]");
  command.count("--eval-tokens", options->eval_tokens, "Held-out tokens to score [the preset's]");
  command.count("--sample-tokens", options->sample_tokens,
                "Tokens of text to generate with each model; 0: none [4 times the training length]", 0);
  command.text("-o,--out", options->out, "DIR", "Folder for report.html, figure.svg, results.json and the models");
  command.group(OptionGroup::text);
  add_valid(command, options->valid);
  add_preset(command, options->preset);
  add_tokenizer(command, options->tokenizer);
  add_dropout(command, options->dropout);
  options->train.add_to(command, OptionGroup::text, {{"length", "train-length"}});  // --lengths are those to test at
  command.group(OptionGroup::optimizer);
  options->train.add_to(command, OptionGroup::optimizer);
  options->add_to(command);
  command.examples(
      "  alibi compare\n"
      "  alibi compare novels/train --valid novels/valid --out novels-report\n"
      "  alibi compare novels/ --tokenizer bpe --vocab-size 2000 --warmup-steps 20\n"
      "  alibi compare notes/ --methods alibi,learned --train-length 64 --lengths 64,256,1024 --tokens 2M");
  command.runs([options] { run_compare(*options); });
}

}  // namespace alibi::cli
