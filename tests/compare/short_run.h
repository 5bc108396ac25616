// Comparisons of a second, and what their settings say.
#pragma once

#include <string>

#include "alibi/compare.h"
#include "alibi/results.h"
#include "temporary_folder.h"

namespace alibi::test {

inline std::string lines(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += "the quick brown fox number " + std::to_string(i) + " jumps over the lazy dog and runs away\n";
  }
  return text;
}

/// A run of a second: `text` and `valid` in the folder, two methods, a few updates.
inline CompareOptions short_run(const TemporaryFolder& folder) {
  CompareOptions options = compare_defaults("tiny");
  options.texts = {folder.write("text.txt", lines(0, 300))};
  options.valid = {folder.write("valid.txt", lines(1000, 40))};
  options.tokenizer = {.kind = "bpe", .vocab_size = 300};
  options.positions = {Position::alibi, Position::none};
  options.lengths = {8, 32};
  options.train.train_length = 8;
  options.train.batch_tokens = 64;
  options.train.train_tokens = 256;
  options.sample_tokens = 12;
  options.timing_rounds = 0;
  return options;
}

/// The same with a model that costs next to nothing.
inline CompareOptions shorter_run(const TemporaryFolder& folder) {
  CompareOptions options = short_run(folder);
  options.model.set("layers", 1);
  options.model.set("d_model", 16);
  options.model.set("heads", 2);
  options.eval_tokens = 256;
  options.sample_tokens = 0;
  return options;
}

inline std::string setting(const CompareResults& results, const std::string& name) {
  for (const auto& [key, value] : results.settings) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace alibi::test
