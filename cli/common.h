// Options that all subcommands share, and their effect.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/train.h"
#include "alibi/training_data.h"
#include "command.h"
#include "given_options.h"
#include "output.h"
#include "report/progress.h"
#include "text/make_tokenizer.h"

namespace alibi::cli {

/// Returns a path that stays valid when the current folder changes. "-" is unchanged.
std::string absolute_path(const std::string& path);
std::vector<std::string> absolute_paths(const std::vector<std::string>& paths);

/// Throws UsageError if several ranks would read standard input.
void check_texts_of_ranks(const std::vector<std::string>& texts);

/// Warns of the files that are no text.
void warn_of_skipped(const FilesRead& files);
nlohmann::ordered_json skipped_json(const FilesRead& files);

/// Without inputs, the command reads standard input.
void default_to_standard_input(std::vector<std::string>& texts);

using AppendText = std::function<void(std::string_view)>;

struct CommonOptions {
  std::string json;
  std::optional<int64_t> threads;  ///< if absent, the library chooses
  uint64_t seed = 0;

  void add_to(Command& command);
  /// Sets the number of threads. Checks before any work that the results can be written. Call it before any output,
  /// because --json may use standard output.
  void apply();
  /// Writes the file of --json if the option was given. `more` appends further members of the object, each preceded by
  /// a comma.
  void write_json(const nlohmann::ordered_json& results,
                  const std::function<void(const AppendText& append)>& more = {}) const;
  void write_json(const std::string& results) const;

 private:
  std::filesystem::path json_file_;  // target of `json`
};

/// What the preset says, and what was given in its place. An update of the preset's that has more tokens than there are
/// to train on is cut to these, which is said.
/// `resumed` is the precision of the run that continues; `auto` keeps it.
TrainOptions train_options(const std::string& preset, const GivenOptions<TrainOptions>& given, uint64_t seed,
                           std::optional<int64_t> tokens = {}, std::optional<Precision> resumed = {});

/// Says which precision a run uses and why.
void say_precision(Precision precision, const GivenOptions<TrainOptions>& given, std::optional<Precision> resumed);

void add_preset(Command& command, std::string& preset);
/// "257 for tiny": the vocabulary of the presets, for help.
std::string vocab_default();
void add_tokenizer(Command& command, TokenizerChoice& choice);
/// Of training; for precision_from().
void add_precision(Command& command, std::string& precision);
/// "4", "dynamic", "yarn:4" or nothing: how a model reads.
/// `action` says what is done with X.
void add_interpolation(Command& command, std::optional<Interpolation>& interpolation,
                       const std::string& action = "ALiBi and rotary: divide positions by X");
/// Options for using a trained model.
struct ModelUse {
  std::optional<Interpolation> interpolation;  ///< absent: what the model's file asks for
  std::string precision = "f32";  ///< supported on every machine, so that results do not depend on the machine
  std::string weights;            ///< type of the matrices in memory; empty: that of the file
  bool quantizes_activations = false;

  void add_to(Command& command);
  void add_weights_to(Command& command);
  /// Throws UsageError for an unknown name, before a model is read.
  void check() const;
  void apply(LanguageModel& model) const;

 private:
  std::optional<DType> weight_type() const;
};
/// Stays empty unless the option is given. Without it the preset's value is used.
void add_dropout(Command& command, std::optional<double>& dropout);
void add_field(Command& command, std::string& field);
void add_valid(Command& command, std::vector<std::string>& texts);

/// For long work: prints a progress line to standard error every few seconds if there is no terminal.
report::ProgressOptions lines_without_terminal();

/// Calls work(progress). The progress is shown on the terminal until the work is done.
template <class Work>
auto with_progress(const Work& work) {
  report::Progress line(stderr, lines_without_terminal());
  std::string label;
  return work([&](std::string_view what, double fraction) {
    if (label != what) line.begin(label = what);
    line.update(fraction);
  });
}

}  // namespace alibi::cli
