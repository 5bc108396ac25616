// What the subcommands share: options that all of them have, and their effect.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/train.h"
#include "command.h"
#include "output.h"
#include "report/progress.h"
#include "text/make_tokenizer.h"

namespace alibi::cli {

struct CommonOptions {
  std::string json;
  int64_t threads = 0;  ///< 0: the library's choice
  uint64_t seed = 0;

  void add_to(Command& command);
  /// Sets the number of threads, and makes sure before any work is done that the results can be written. To be called
  /// before anything is said: --json may take standard output.
  void apply();
  /// Writes the file of --json, if one was asked for.
  void write_json(const nlohmann::ordered_json& results) const;
  void write_json(const std::string& results) const;

 private:
  std::filesystem::path json_file_;  // where `json` leads
};

/// The learning rate over a run. Below zero and empty, and 0 for what must be positive: what the preset says.
struct LearningRateChoice {
  std::string schedule;
  double peak = 0, warmup = -1;
  int64_t warmup_steps = -1;

  void add_to(Command& command);
  void apply_to(TrainOptions& options) const;
};

/// The tokens of an update: as many as were asked for, or (0) the preset's, at most all. Says if these were too many.
void choose_batch(TrainOptions& options, int64_t asked);

/// Names of all position methods.
std::vector<std::string> position_names();

void add_preset(Command& command, std::string& preset);
/// A help text and what the presets say where the option is not given: "Peak [the preset's; tiny: 0.004]", or the value
/// alone where it is that of every preset.
std::string with_preset_default(const char* help, const std::function<std::string(const TrainOptions&)>& value);
template <class Value>
std::string with_preset_default(const char* help, Value TrainOptions::*value) {
  return with_preset_default(help, [value](const TrainOptions& options) { return fmt::format("{}", options.*value); });
}
void add_tokenizer(Command& command, TokenizerChoice& choice);
/// Of training; for precision_from().
void add_precision(Command& command, std::string& precision);
/// Below zero: the preset's.
void add_dropout(Command& command, double& dropout);
void add_valid(Command& command, std::vector<std::string>& texts);

/// For work that takes long: a line now and then among what is said, where there is no terminal.
ProgressOptions lines_without_terminal();

/// Calls work(progress), which is shown on the terminal while it lasts.
template <class Work>
auto with_progress(const Work& work) {
  Progress line(stderr, lines_without_terminal());
  std::string label;
  return work([&](std::string_view what, double fraction) {
    if (label != what) line.begin(label = what);
    line.update(fraction);
  });
}

}  // namespace alibi::cli
