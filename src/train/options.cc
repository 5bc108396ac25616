#include <algorithm>
#include <cmath>

#include "alibi/train.h"
#include "core/names.h"
#include "train/described.h"

namespace alibi {

const char* name_of(Optimizer optimizer) { return enum_name(optimizer); }
const char* name_of(ScheduleKind kind) { return enum_name(kind); }
Optimizer optimizer_from(std::string_view name) { return core::value_called<Optimizer>(name, "optimizer"); }
ScheduleKind schedule_from(std::string_view name) { return core::value_called<ScheduleKind>(name, "schedule"); }

void TrainOptions::validate() const {
  training::check_ranges(*this);
  check_usage(batch_tokens <= tokens,
              "[train] an update of {} tokens is more than the {} to train on; choose a smaller one, or more tokens",
              batch_tokens, tokens);
  constexpr int64_t most_at_once = 1'000'000'000;  // an update lists its blocks
  check_usage(batch_tokens <= most_at_once, "[train] batch_tokens is {}, expected at most {}", batch_tokens,
              most_at_once);
  check_usage(patience == 0 || eval_steps > 0, "[train] patience is {} and eval_steps 0: nothing would be evaluated",
              patience);
}

void TrainOptions::check_text(int64_t text_tokens) const {
  check_usage(length <= text_tokens,
              "[train] the length is {}, and the text to train on has {} tokens; choose a shorter length, or give more "
              "text",
              length, text_tokens);
}

int64_t TrainOptions::steps() const { return std::max<int64_t>(1, tokens / batch_tokens); }

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
  options.length = 512;
  options.batch_tokens = 8 * 9216;  // 9216 on each of 8 GPUs
  options.micro_batch_tokens = 9216;
  options.tokens = 286'000 * options.batch_tokens;
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

}  // namespace alibi
