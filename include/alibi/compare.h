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
  std::vector<std::string> texts;  ///< files, folders, "-", or a folder of `alibi tokenize`; empty: the default corpus
  std::vector<std::string> valid;  ///< held-out text; empty: the fixed split by file
  std::string field = "text";      ///< .jsonl: the field of each line's object that holds the text
  TokenizerChoice tokenizer;       ///< for all methods; learned from the training text
  std::vector<Position> methods = {Position::alibi, Position::sinusoidal, Position::rotary, Position::t5};
  int64_t seeds = 1;                   ///< each method is trained from so many: train.seed and those that follow
  std::vector<int64_t> train_lengths;  ///< each method is trained at each of these; empty: train.length alone
  std::string preset = "tiny";
  ModelOptions model;            ///< in place of what the preset says; the same for all methods
  std::optional<float> dropout;  ///< absent: the preset's; 0 turns all kinds of it off
  std::vector<int64_t> lengths;  ///< to evaluate at; empty: 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16 times the training length
  int64_t stride = 0;            ///< also evaluate with a window that slides by so many tokens; 0: not
  bool stream = false;           ///< also evaluate in one pass, where each target sees all the text before it
  std::optional<Interpolation> interpolation;  ///< also evaluate alibi with flatter slopes; absent: not
  int64_t eval_tokens = 0;     ///< held-out tokens to score, spread evenly over its files; 0: the preset's
  int64_t sample_tokens = -1;  ///< tokens of generated text per method; -1: 4 times the training length; 0: none
  int64_t timing_rounds = 3;   ///< how often each method is timed at the end, if there is a folder; 0: not
  TrainOptions train;          ///< length, tokens, rates, seed: shared by all methods
  /// Not empty: of these learning rates each method gets the one that does best on text carved out of the training
  /// text.
  std::vector<double> tune_rates;
  /// Folder for the report, the models and what is needed to go on where a killed comparison was: the same options and
  /// text continue it, others are refused. Seeds, methods and training lengths may be added. Empty: nothing is written.
  std::filesystem::path out;
  bool overwrite = false;  ///< begin anew: replace the comparison that the folder holds
  std::string command;     ///< how the user called it, for the report
  std::string settings;    ///< written to settings.json of the folder when a comparison begins; empty: not written
  /// Asked now and then; true: compare() returns with the runs that are done, and the same call goes on.
  std::function<bool()> should_stop = {};
  /// Told what casts doubt on the comparison, before anything is trained: held_out_warning(). The report has it too.
  std::function<void(std::string_view)> on_warning = {};
};

/// Where a comparison stands, for progress displays.
struct CompareStatus {
  std::string method;  ///< empty while the text is read
  int64_t train_length = 0;
  uint64_t seed = 0;
  int64_t run = 0, runs = 0;  ///< this one, counted from 0, and all
  /// "read", "tokenize" and such, then for each method "tune", if asked, for each run "train", "evaluate", "generate",
  /// and at the end "speed"
  std::string phase;
  TrainStatus train;        ///< in phase "train"
  int64_t length = 0;       ///< in phase "evaluate"
  double fraction = 0;      ///< of this phase
  double seconds = 0;       ///< since the start of this call
  double seconds_left = 0;  ///< estimate for the whole comparison; 0: not known yet
};

/// The defaults of a preset for training and comparing (tokens, rate, batch), which the caller may then change.
ALIBI_API CompareOptions compare_defaults(const std::string& preset);

/// Trains every method on the same batches from the same seeds, evaluates each on the same targets, and writes the
/// report, if asked, after each. What is done stays done: a call that was killed in training or evaluation is continued
/// by the next one to the same results. Throws Error if the folder holds another comparison, and says what differs.
ALIBI_API CompareResults compare(const CompareOptions& options,
                                 const std::function<void(const CompareStatus&)>& on_status = {});

}  // namespace alibi
