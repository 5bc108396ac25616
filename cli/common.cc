#include "common.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "alibi/language_model.h"
#include "alibi/runtime.h"
#include "core/check.h"
#include "core/files.h"

namespace alibi::cli {

void CommonOptions::add_to(Command& command) {
  command.group("Common");
  command.text("--json", json, "FILE", "Also write the results to this file, as JSON; -: to standard output");
  command.count("--threads", threads, "Threads to compute with; results do not depend on it [all cores]", 1, 1024);
  command.seed(seed);
}

void CommonOptions::apply() {
  if (threads > 0) set_threads(static_cast<int>(threads));
  if (!json.empty()) json_file_ = output_file(json, "--json");
}

void CommonOptions::write_json(const nlohmann::ordered_json& results) const {
  // Text that a model wrote need not be valid UTF-8.
  write_json(results.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void CommonOptions::write_json(const std::string& results) const {
  if (!json_file_.empty()) write_file(json_file_, results);
}

void LearningRateChoice::add_to(Command& command) {
  command.number("--learning-rate", peak, with_preset_default("Peak", &TrainOptions::learning_rate));
  command.text("--schedule", schedule, "NAME",
               with_preset_default("cosine, linear, constant or fairseq",
                                   [](const TrainOptions& o) { return std::string(name_of(o.schedule_kind)); }));
  command.choices("--schedule", {"cosine", "linear", "constant", "fairseq"});
  command.number(
      "--warmup", warmup, with_preset_default("Part of the updates with rising rate", [](const TrainOptions& o) {
        return o.warmup_steps < 0 ? fmt::format("{}", o.warmup_fraction) : fmt::format("{} updates", o.warmup_steps);
      }));
  command.count("--warmup-steps", warmup_steps, "Or their number", 0);
  command.exclude("--warmup-steps", "--warmup");
}

void LearningRateChoice::apply_to(TrainOptions& options) const {
  if (!schedule.empty()) options.schedule_kind = schedule_from(schedule);
  if (peak > 0) options.learning_rate = peak;
  if (warmup >= 0) {
    options.warmup_fraction = warmup;
    options.warmup_steps = -1;
  }
  if (warmup_steps >= 0) options.warmup_steps = warmup_steps;
}

void choose_batch(TrainOptions& options, int64_t asked) {
  if (asked > 0) options.batch_tokens = asked;
  if (asked > 0 || options.batch_tokens <= options.tokens) return;
  say("An update has {} tokens, all there are to train on; the preset's would have {}\n",
      format_integer(options.tokens), format_integer(options.batch_tokens));
  options.batch_tokens = options.tokens;
}

ProgressOptions lines_without_terminal() {
  ProgressOptions options;
  options.line = [](std::string_view line) {
    say("{}\n", line);
    flush_output();
  };
  return options;
}

std::string with_preset_default(const char* help, const std::function<std::string(const TrainOptions&)>& value) {
  const std::vector<std::string> names = preset_names();
  const std::string first = value(training_defaults(names.front()));
  const bool is_everyones = std::all_of(
      names.begin(), names.end(), [&](const std::string& name) { return value(training_defaults(name)) == first; });
  return is_everyones ? fmt::format("{} [{}]", help, first)
                      : fmt::format("{} [the preset's; {}: {}]", help, names.front(), first);
}

std::vector<std::string> position_names() {
  std::vector<std::string> names;
  for (const Position position :
       {Position::alibi, Position::sinusoidal, Position::rotary, Position::t5, Position::learned, Position::none}) {
    names.emplace_back(name_of(position));
  }
  return names;
}

void add_preset(Command& command, std::string& preset) {
  command.text("--preset", preset, "NAME", fmt::format("Size of the model: {}", fmt::join(preset_names(), ", ")));
  command.choices("--preset", preset_names());
}

void add_tokenizer(Command& command, TokenizerChoice& choice) {
  command.text("--tokenizer", choice.kind, "KIND",
               fmt::format("What tokens are, learned from the text: {}", fmt::join(tokenizer_kinds(), ", ")));
  command.choices("--tokenizer", tokenizer_kinds());
  command.count("--vocab-size", choice.vocab_size,
                "How many different tokens at most [bpe, unigram: 8192; words: all]");
  command.text("--like", choice.like, "MODEL", "Take the tokenizer of this model");
  command.count("--min-count", choice.min_count, "words: what the text has less often is unknown");
}

void add_precision(Command& command, std::string& precision) {
  command.text(
      "--precision", precision, "NAME",
      "Of training: f32; bf16: weights, activations and products in bfloat16; auto: bf16 where the CPU has it");
  command.choices("--precision", {"f32", "bf16", "auto"});
}

void add_dropout(Command& command, double& dropout) {
  command.number("--dropout", dropout, "Part of the activations dropped in training [the preset's]");
}

void add_valid(Command& command, std::vector<std::string>& texts) {
  command.repeated("--valid", texts, "TEXT", "Text to hold out, may be repeated [some of the files, by a fixed rule]");
}

}  // namespace alibi::cli
