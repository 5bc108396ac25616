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
#include "alibi/results.h"
#include "alibi/train.h"

namespace alibi {

struct CompareOptions {
  std::vector<std::string> texts;  ///< files, folders, "-", or a folder of `alibi tokenize`; empty: the default corpus
  std::vector<std::string> valid;  ///< held-out text; empty: the fixed split by file
  TokenizerChoice tokenizer;       ///< for all methods; learned from the training text
  std::vector<Position> methods = {Position::alibi, Position::sinusoidal, Position::rotary, Position::t5};
  std::string preset = "tiny";
  std::optional<float> dropout;  ///< absent: the preset's
  std::vector<int64_t> lengths;  ///< to evaluate at; empty: 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16 times the training length
  int64_t eval_tokens = 0;       ///< held-out tokens to score (a prefix of the stream); 0: the preset's
  int64_t sample_tokens = -1;    ///< tokens of generated text per method; -1: 4 times the training length; 0: none
  TrainOptions train;            ///< length, tokens, rates, seed: shared by all methods
  std::filesystem::path out;     ///< folder for the report and the models; empty: nothing is written
  std::string command;           ///< how the user called it, for the report
};

/// Where a comparison stands, for progress displays.
struct CompareStatus {
  std::string method;       ///< empty while the text is read
  std::string phase;        ///< "read", "tokenize" and such, then for each method "train", "evaluate", "generate"
  TrainStatus train;        ///< in phase "train"
  int64_t length = 0;       ///< in phase "evaluate"
  double fraction = 0;      ///< of this phase
  double seconds = 0;       ///< since the start of the comparison
  double seconds_left = 0;  ///< estimate for the whole comparison; 0: not known yet
};

/// The defaults of a preset for training and comparing (tokens, rate, batch), which the caller may then change.
ALIBI_API CompareOptions compare_defaults(const std::string& preset);

/// Trains every method on the same batches from the same seed, evaluates each, and writes the report if asked.
ALIBI_API CompareResults compare(const CompareOptions& options,
                                 const std::function<void(const CompareStatus&)>& on_status = {});

}  // namespace alibi
