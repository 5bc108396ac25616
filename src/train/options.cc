#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "alibi/train.h"
#include "core/check.h"

namespace alibi {
namespace {

constexpr std::array<std::pair<Optimizer, const char*>, 2> kOptimizers = {
    {{Optimizer::adamw, "adamw"}, {Optimizer::nag, "nag"}}};
constexpr std::array<std::pair<ScheduleKind, const char*>, 4> kSchedules = {{{ScheduleKind::cosine, "cosine"},
                                                                             {ScheduleKind::linear, "linear"},
                                                                             {ScheduleKind::constant, "constant"},
                                                                             {ScheduleKind::fairseq, "fairseq"}}};

template <class T, size_t N>
const char* name_in(const std::array<std::pair<T, const char*>, N>& names, T value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  fail("[train] an enumerator without a name");
}

template <class T, size_t N>
T value_in(const std::array<std::pair<T, const char*>, N>& names, std::string_view name, const char* what) {
  std::vector<std::string_view> known;
  for (const auto& entry : names) {
    if (entry.second == name) return entry.first;
    known.push_back(entry.second);
  }
  fail_usage("[train] there is no {} '{}', expected one of {}", what, name, fmt::join(known, ", "));
}

void check_fraction(double value, const char* name) {
  check_usage(value >= 0 && value <= 1, "[train] {} is {}, expected 0 to 1", name, value);
}

void check_not_negative(double value, const char* name) {
  check_usage(std::isfinite(value) && value >= 0, "[train] {} is {}, expected at least 0", name, value);
}

}  // namespace

const char* name_of(Optimizer optimizer) { return name_in(kOptimizers, optimizer); }
const char* name_of(ScheduleKind kind) { return name_in(kSchedules, kind); }
Optimizer optimizer_from(std::string_view name) { return value_in(kOptimizers, name, "optimizer"); }
ScheduleKind schedule_from(std::string_view name) { return value_in(kSchedules, name, "schedule"); }

void TrainOptions::validate() const {
  check_usage(length >= 1, "[train] the length is {}, expected at least 1", length);
  check_usage(tokens >= 1, "[train] {} tokens to train on, expected at least 1", tokens);
  check_usage(batch_tokens >= 1 && micro_batch_tokens >= 1,
              "[train] batch_tokens is {} and micro_batch_tokens {}, expected at least 1", batch_tokens,
              micro_batch_tokens);
  check_usage(batch_tokens <= tokens,
              "[train] an update of {} tokens is more than the {} to train on; choose a smaller one, or more tokens",
              batch_tokens, tokens);
  check_usage(std::isfinite(learning_rate) && learning_rate > 0, "[train] the learning rate is {}, expected above 0",
              learning_rate);
  check_fraction(warmup_fraction, "warmup_fraction");
  check_fraction(final_fraction, "final_fraction");
  check_usage(warmup_steps >= -1, "[train] warmup_steps is {}, expected at least 0, or -1", warmup_steps);
  check_not_negative(warmup_from, "warmup_from");
  check_not_negative(floor, "floor");
  check_usage(period >= 0, "[train] period is {}, expected at least 0", period);
  check_not_negative(weight_decay, "weight_decay");
  check_usage(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, "[train] betas are {} and {}, expected in [0, 1)",
              beta1, beta2);
  check_usage(eps > 0, "[train] eps is {}, expected above 0", eps);
  check_usage(momentum >= 0 && momentum < 1, "[train] momentum is {}, expected in [0, 1)", momentum);
  check_not_negative(clip, "clip");
  check_usage(eval_steps >= 0 && eval_tokens >= 0 && patience >= 0,
              "[train] eval_steps, eval_tokens and patience are {}, {} and {}, expected at least 0", eval_steps,
              eval_tokens, patience);
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
