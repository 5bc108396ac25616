// Train short, test long: the paper's central figure on the user's own text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/export.h"
#include "alibi/model_options.h"
#include "alibi/results.h"
#include "alibi/train.h"

namespace alibi {

struct CompareOptions {
  std::vector<std::string> texts;  ///< files, folders, "-", or a folder of `alibi tokenize`; empty: the default corpus,
                                   ///< or no text if there are tasks
  std::vector<std::string> valid;  ///< held-out text; empty: the fixed split by file
  std::string field = "text";      ///< .jsonl: the field of each line's object that holds the text
  TokenizerChoice tokenizer;       ///< tokenizer of all methods; learned from the training text
  std::vector<Position> positions = {Position::alibi, Position::sinusoidal, Position::rotary, Position::t5,
                                     Position::rotary + Position::alibi};
  int64_t seeds = 1;                   ///< number of seeds per method: train.seed and the following ones
  std::vector<int64_t> train_lengths;  ///< training lengths of each method; empty: only train.train_length
  std::string preset = "tiny";
  ModelOptions model;            ///< override the preset; the same for all methods
  std::optional<float> dropout;  ///< absent: the preset's; 0 disables every kind of dropout
  std::vector<int64_t> lengths;  ///< evaluation lengths; empty: 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16 times the training
                                 ///< length
  int64_t stride = 0;            ///< also evaluate with a window that slides by this number of tokens; 0 disables it
  bool one_pass = false;         ///< also evaluate in one pass, where each target sees all the text before it
  std::optional<Interpolation> interpolation;  ///< if set, also evaluate with scaled positions, where a method can
  /// Methods of `positions` whose models are also evaluated with a sliding window of their training length, without
  /// another training. Each is a method of its own in the results, such as "rotary, window 128".
  std::vector<Position> windowed;
  int64_t eval_tokens = 0;         ///< held-out tokens to score, spread evenly over its files; 0: the preset's
  int64_t sample_tokens = -1;      ///< tokens of generated text per method; -1: 4 times the training length; 0: none
  std::vector<std::string> tasks;  ///< synthetic tasks to train and test models on: task_names()
  int64_t task_tokens = 0;         ///< tokens to train on for each task; 0: the preset's for text
  int64_t task_questions = 100;    ///< questions for each length and range of distances
  double task_share = 0;           ///< if positive, no model is trained on a task alone: this share of the sequences of
                                   ///< the training on text belongs to the tasks, in turn
  int64_t timing_rounds = 3;       ///< number of timing rounds at the end, if there is a folder; 0 disables timing
  TrainOptions train;              ///< length, tokens, rates, seed: shared by all methods
  /// If not empty, each method gets the learning rate of these that is best on a part of the training text, and on new
  /// sequences of each task.
  std::vector<double> tune_rates;
  /// Folder for the report, the models and the state of the comparison. The same options and text continue an
  /// interrupted comparison; others are refused. Seeds, methods and training lengths may be added. If empty, nothing is
  /// written.
  std::filesystem::path out;
  bool overwrite = false;  ///< replace the comparison in the folder
  std::string command;     ///< the user's command line, for the report
  std::string settings;    ///< content of settings.json, written when a comparison begins; empty: not written
  /// Called from time to time. If it returns true, compare() returns the finished runs, and the same call continues.
  std::function<bool()> should_stop = {};
  /// Called with warnings before the training: held_out_warning(). The report shows them too.
  std::function<void(std::string_view)> on_warning = {};
};

/// State of a running comparison, for progress displays.
struct CompareStatus {
  std::string method;  ///< empty during reading
  std::string task;    ///< the task of the run; empty: text
  int64_t train_length = 0;
  uint64_t seed = 0;
  int64_t run = 0, runs = 0;  ///< index of the current run, from 0, and their number
  /// "read", "tokenize" and others, then for each method "tune", if set, for each run "train", "evaluate", "generate",
  /// and at the end "speed"
  std::string phase;
  TrainStatus train;        ///< in phase "train"
  int64_t length = 0;       ///< in phase "evaluate"
  double fraction = 0;      ///< finished fraction of this phase
  double seconds = 0;       ///< since the start of this call
  double seconds_left = 0;  ///< estimate for the whole comparison; 0 if not known yet
};

/// Default options of a preset (tokens, rate, batch), for the caller to change.
ALIBI_API CompareOptions compare_defaults(const std::string& preset);

/// The names of the synthetic tasks; docs/reference/evaluation.md describes them under Tasks.
ALIBI_API std::vector<std::string> task_names();

/// The precision of the comparison in this folder, if there is one. A call that continues it must give this precision;
/// best_precision() may have changed.
ALIBI_API std::optional<Precision> compared_precision(const std::filesystem::path& folder);

/// Trains every method on the same batches with the same seeds, evaluates each on the same targets, and writes the
/// report after each run if `out` is set. If a call was killed, the next one continues it to the same results. Throws
/// Error if the folder holds another comparison, and names the differences.
ALIBI_API CompareResults compare(const CompareOptions& options,
                                 const std::function<void(const CompareStatus&)>& on_status = {});

}  // namespace alibi
