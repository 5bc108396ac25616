#include <algorithm>
#include <cmath>
#include <numbers>

#include "alibi/sequence_parallel.h"
#include "alibi/train.h"
#include "core/check.h"
#include "core/names.h"
#include "train/batches.h"
#include "train/described.h"

namespace alibi {
namespace {

/// Half a cosine: 1 at progress 0, and 0 from progress 1 on.
double falling_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, progress))); }

/// Progress from `begin` to `end`, as a number from 0 to 1.
double progress_of(int64_t step, int64_t begin, int64_t end) {
  return std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(std::max<int64_t>(1, end - begin)));
}

struct Recipe {
  const char* preset;
  int64_t tokens, batch_tokens, length;
  double learning_rate;
};

// paper-1.3b has the paper's 50,000 updates, the learning rate of GPT-3 1.3B (Brown et al. 2020, table 2.1) and half
// its batch size.
constexpr Recipe recipes[] = {
    {"tiny", 1'000'000, 2048, 128, 4e-3},        {"small", 20'000'000, 16384, 128, 1e-3},
    {"base", 200'000'000, 65536, 128, 6e-4},     {"medium", 500'000'000, 131072, 128, 3e-4},
    {"large", 1'000'000'000, 262144, 128, 2e-4}, {"paper-1.3b", int64_t{50'000} << 19, 1 << 19, 1024, 2e-4},
};

}  // namespace

const char* name_of(Optimizer optimizer) { return enum_name(optimizer); }
const char* name_of(ScheduleKind kind) { return enum_name(kind); }
Optimizer optimizer_from(std::string_view name) { return core::value_called<Optimizer>(name, "optimizer"); }
ScheduleKind schedule_from(std::string_view name) { return core::value_called<ScheduleKind>(name, "schedule"); }

void TrainOptions::validate() const {
  training::check_ranges(*this);
  check_usage(batch_tokens <= train_tokens,
              "[train] an update has {} tokens, expected at most {}, the number to train on; choose a smaller "
              "update or more tokens",
              batch_tokens, train_tokens);
  constexpr int64_t max_at_once = 1'000'000'000;  // an update stores a list of its blocks
  check_usage(batch_tokens <= max_at_once, "[train] batch_tokens is {}, expected at most {}", batch_tokens,
              max_at_once);
  const int64_t blocks = training::blocks_per_update(*this);
  check_usage(
      shards <= blocks,
      "[train] shards is {}, but an update has {} training sequences, so some shards would be empty; choose fewer "
      "shards or larger updates",
      shards, blocks);
  constexpr int64_t min_shard = SequenceShard::row_multiple;
  check_usage(
      train_length >= sequence_ranks * min_shard || sequence_ranks == 1,
      "[train] sequence_ranks is {}, but training sequences have {} tokens; expected at least {}, {} for each rank",
      sequence_ranks, train_length, sequence_ranks * min_shard, min_shard);
  check_usage(patience == 0 || eval_steps > 0,
              "[train] patience is {}, but eval_steps is 0, so nothing would be evaluated; set eval_steps", patience);
}

void TrainOptions::check_text(int64_t text_tokens) const {
  check_usage(train_length <= text_tokens,
              "[train] the length is {}, but the text to train on has {} tokens; choose a shorter length, or give "
              "more text",
              train_length, text_tokens);
}

int64_t TrainOptions::steps() const { return std::max<int64_t>(1, train_tokens / batch_tokens); }

Schedule TrainOptions::schedule() const {
  Schedule result;
  result.kind = schedule_kind;
  result.peak = learning_rate;
  result.steps = steps();
  result.warmup_steps = warmup_steps >= 0
                            ? warmup_steps
                            : static_cast<int64_t>(std::ceil(warmup_fraction * static_cast<double>(result.steps)));
  result.final_fraction = final_fraction;
  result.warmup_from = warmup_from;
  result.floor = floor;
  result.period = period;
  return result;
}

TrainOptions paper_recipe() {
  TrainOptions options;
  options.train_length = 512;
  options.batch_tokens = 8 * 9216;  // 9216 tokens on each of 8 GPUs
  options.micro_batch_tokens = 9216;
  options.train_tokens = 286'000 * options.batch_tokens;
  options.optimizer = Optimizer::nag;
  options.momentum = 0.99;
  options.weight_decay = 0;
  options.clip = 0.1;
  options.schedule_kind = ScheduleKind::fairseq;
  options.learning_rate = 1;
  options.warmup_steps = 16'000;
  options.warmup_from = 1e-7;
  options.floor = 1e-4;
  options.period = 270'000;
  options.seed = 1;
  return options;
}

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) {
    const auto updates = static_cast<double>(warmup_steps);
    if (kind == ScheduleKind::fairseq) return warmup_from + static_cast<double>(step) * (peak - warmup_from) / updates;
    return peak * static_cast<double>(step + 1) / updates;
  }
  switch (kind) {
    case ScheduleKind::cosine:
      return peak * (final_fraction + (1 - final_fraction) * falling_cosine(progress_of(step, warmup_steps, steps)));
    case ScheduleKind::linear:
      return peak * (1 - (1 - final_fraction) * progress_of(step, warmup_steps, steps));
    case ScheduleKind::constant:
      return peak;
    case ScheduleKind::fairseq: {
      const int64_t end = period > 0 ? warmup_steps + period : steps;
      return floor + (peak - floor) * falling_cosine(progress_of(step, warmup_steps, end));
    }
  }
  return peak;
}

TrainOptions training_defaults(std::string_view name) {
  const LanguageModelConfig known = preset(name);  // throws an Error that lists the names
  if (known.adaptive) return paper_recipe();
  TrainOptions options;
  for (const Recipe& recipe : recipes) {
    if (name != recipe.preset) continue;
    options.train_tokens = recipe.tokens;
    options.batch_tokens = recipe.batch_tokens;
    options.train_length = recipe.length;
    options.learning_rate = recipe.learning_rate;
    return options;
  }
  fail("[train] the preset '{}' has no training defaults", name);
}

}  // namespace alibi
