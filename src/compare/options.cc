#include "compare/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "compare/held_out.h"
#include "compare/run.h"
#include "compare/task_run.h"
#include "core/check.h"
#include "train/batches.h"

namespace alibi::comparison {
namespace {

/// All training lengths must have the same number of tokens per update.
void check_updates(const std::vector<int64_t>& lengths, int64_t batch_tokens) {
  int64_t common = 1;
  for (const int64_t length : lengths) common = std::min<int64_t>(std::lcm(common, length), INT32_MAX);
  const int64_t nearest = std::max<int64_t>(1, (batch_tokens + common / 2) / common) * common;
  for (const int64_t length : lengths) {
    check_usage(lengths.size() == 1 || batch_tokens % length == 0,
                "[compare] an update has {} tokens, which is not a multiple of {}, so the training lengths {} "
                "would not have the same updates; use --batch-tokens {}, the nearest number that all of them divide",
                batch_tokens, length, fmt::join(lengths, ", "), nearest);
  }
}

void check_tasks(CompareOptions& options) {
  const std::vector<std::string>& tasks = options.tasks;
  check_usage(options.task_tokens >= 0, "[compare] task_tokens is {}, expected at least 0", options.task_tokens);
  constexpr int64_t least = 35;
  check_usage(options.task_questions >= least,
              "[compare] task_questions is {}, expected at least {}: fewer cannot show that the accuracy is above 90 %",
              options.task_questions, least);
  if (const double share = options.task_share; share != 0) {
    TrainOptions longest = options.train;
    longest.train_length = options.train_lengths.back();
    const int64_t sequences = training::blocks_per_update(longest);
    check_usage(!tasks.empty(), "[compare] task_share is {:g}, but there are no tasks; name some with --tasks", share);
    check_usage(options.task_tokens == 0,
                "[compare] task_tokens and task_share are given, but with a share the tasks have that share of the "
                "text's training; give one of them");
    check_usage(
        share > 0 && share < 1 && rows_of_tasks(share, sequences) < sequences,
        "[compare] task_share is {:g}, expected a number above 0 and below 1 that leaves at least one of the {} "
        "sequences of an update to the text",
        share, sequences);
  }
  if (options.task_tokens == 0) options.task_tokens = options.train.train_tokens;
  if (tasks.empty()) return;
  for (const std::string& name : tasks) {
    task_from(name);
    check_usage(std::count(tasks.begin(), tasks.end(), name) == 1,
                "[compare] the task {} is given twice; name each task once", name);
  }
  check_usage(options.train_lengths.front() >= kShortestTask,
              "[compare] a training length is {}, expected at least {} with tasks", options.train_lengths.front(),
              kShortestTask);
  task_training(options.train, options.task_tokens).validate();
}

}  // namespace

std::string names_of(const std::vector<Position>& methods) {
  std::vector<std::string> names;
  for (const Position method : methods) names.emplace_back(name_of(method));
  return fmt::format("{}", fmt::join(names, ", "));
}

void complete_options(CompareOptions& options) {
  const OptionValue* causal = options.model.find("causal");
  check_usage(!causal || *causal == OptionValue(true),
              "[compare] causal is false, expected true; encoders cannot be compared yet");
  if (options.train_lengths.empty()) options.train_lengths = {options.train.train_length};
  std::sort(options.train_lengths.begin(), options.train_lengths.end());
  const auto repeated = std::unique(options.train_lengths.begin(), options.train_lengths.end());
  options.train_lengths.erase(repeated, options.train_lengths.end());
  options.train.train_length = options.train_lengths.front();
  options.train.validate();
  check_usage(options.train.train_length >= 1, "[compare] a training length is {}, expected at least 1",
              options.train.train_length);
  check_updates(options.train_lengths, options.train.batch_tokens);
  check_tasks(options);
  constexpr int64_t max_seeds = 10'000;
  check_usage(options.seeds >= 1 && options.seeds <= max_seeds, "[compare] seeds is {}, expected 1 to {}",
              options.seeds, max_seeds);
  check_usage(options.stride >= 0, "[compare] stride is {}, expected at least 0", options.stride);
  check_usage(options.timing_rounds >= 0, "[compare] timing_rounds is {}, expected at least 0", options.timing_rounds);
  check_usage(!options.positions.empty(), "[compare] there are no methods to compare; expected at least one");
  std::vector<Position> sorted = options.positions;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  check_usage(twice == sorted.end(), "[compare] the method {} is given twice; name each method once",
              twice == sorted.end() ? "" : name_of(*twice));
  for (const Position method : options.windowed) {
    check_usage(std::ranges::find(options.positions, method) != options.positions.end(),
                "[compare] windowed has {}, which is not among the methods to compare: {}", name_of(method),
                names_of(options.positions));
  }
  std::sort(options.windowed.begin(), options.windowed.end());
  options.windowed.erase(std::unique(options.windowed.begin(), options.windowed.end()), options.windowed.end());
  check_usage(options.windowed.empty() || has_text(options),
              "[compare] windowed has {}, but there is no text to evaluate; give one, or leave it out",
              names_of(options.windowed));
  for (const Position method : options.positions) {  // throws an Error if the configuration is invalid
    const AttentionConfig attention =
        model_config(options, method, options.train.train_length, nullptr).transformer.attention;
    check_usage(options.windowed.empty() || attention.sliding_window == 0,
                "[compare] windowed has {}, but all models have a sliding window of {}; leave out one of the two",
                names_of(options.windowed), attention.sliding_window);
  }
  std::vector<int64_t>& lengths = options.lengths;
  if (lengths.empty()) {
    lengths = lengths_to_measure(options.train.train_length);
    lengths.insert(lengths.end(), options.train_lengths.begin(), options.train_lengths.end());
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  check_usage(options.sample_tokens >= -1, "[compare] sample_tokens is {}, expected at least -1",
              options.sample_tokens);
  check_usage(lengths.front() >= 1, "[compare] lengths have {}, expected at least 1", lengths.front());
  check_usage(options.eval_tokens >= 0, "[compare] eval_tokens is {}, expected at least 0", options.eval_tokens);
  std::sort(options.tune_rates.begin(), options.tune_rates.end());
  for (const double rate : options.tune_rates) {
    check_usage(std::isfinite(rate) && rate > 0, "[compare] tune_rates have {}, expected a number above 0", rate);
  }
  if (options.eval_tokens == 0) options.eval_tokens = tokens_to_score(options.preset, lengths.back());
}

bool has_text(const CompareOptions& options) {
  return !options.texts.empty() || options.tasks.empty() || options.task_share > 0;
}

}  // namespace alibi::comparison
