// What training is done with: every option with its name, its help, what it takes and whether it changes the result.
// The command line, train.json, the identity of a run, validation and the table in docs/reference/training.md come
// from here.
#pragma once

#include <cstdint>
#include <string_view>

#include "alibi/export.h"
#include "alibi/options.h"
#include "alibi/transformer.h"

namespace alibi {

enum class Optimizer : uint8_t {
  adamw,  ///< Loshchilov & Hutter 2019
  nag,  ///< Nesterov's accelerated gradient as fairseq has it: with c = rate / previous rate, p += momentum^2 c buffer
        ///< - (1 + momentum) rate g, then buffer = momentum c buffer - rate g
};

enum class ScheduleKind : uint8_t {
  cosine,    ///< half a cosine from the peak to final_fraction of it at the last update
  linear,    ///< a straight line between the same ends
  constant,  ///< the peak
  fairseq,   ///< half a cosine from the peak to `floor` over `period` updates, then the floor
};

template <>
inline constexpr auto enum_names<Optimizer> = std::to_array<EnumName<Optimizer>>({{Optimizer::adamw, "adamw"},
                                                                                  {Optimizer::nag, "nag"}});
template <>
inline constexpr auto enum_names<ScheduleKind> =
    std::to_array<EnumName<ScheduleKind>>({{ScheduleKind::cosine, "cosine"},
                                           {ScheduleKind::linear, "linear"},
                                           {ScheduleKind::constant, "constant"},
                                           {ScheduleKind::fairseq, "fairseq"}});

ALIBI_API const char* name_of(Optimizer);
ALIBI_API const char* name_of(ScheduleKind);
/// These throw UsageError with the names to choose from.
ALIBI_API Optimizer optimizer_from(std::string_view name);
ALIBI_API ScheduleKind schedule_from(std::string_view name);

/// The learning rate of each update. All kinds rise linearly at first; the first of warmup_steps updates has the rate
/// peak / warmup_steps, but warmup_from with ScheduleKind::fairseq.
struct ALIBI_API Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t steps = 1;            ///< of the whole run
  double final_fraction = 0.1;  ///< cosine, linear
  double warmup_from = 1e-7;    ///< fairseq
  double floor = 1e-4;          ///< fairseq
  int64_t period = 0;           ///< fairseq; 0: the updates after the warmup
  /// Rate of update `step` (counted from 0). Updates past the end keep the last rate: where fairseq would begin a new
  /// period at 0.75 of the peak, this keeps the floor.
  double at(int64_t step) const;
};

/// What each is, what it may be and whether it changes the result: options_of<TrainOptions>, below. Which preset has
/// other defaults: training_defaults(). The default of a new one is what was done before there was one, for it is what
/// checkpoints without it were written with.
struct ALIBI_API TrainOptions {
  int64_t train_length = 128;
  int64_t train_tokens = 1'000'000;
  int64_t batch_tokens = 8192;
  int64_t micro_batch_tokens = 4096;
  Precision precision = Precision::f32;
  bool recompute = false;
  Optimizer optimizer = Optimizer::adamw;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  double momentum = 0.99;
  double clip = 1.0;
  ScheduleKind schedule_kind = ScheduleKind::cosine;
  double learning_rate = 2e-3;
  double warmup_fraction = 0.05;
  int64_t warmup_steps = -1;  ///< -1: by warmup_fraction
  double final_fraction = 0.1;
  double warmup_from = 1e-7;
  double floor = 1e-4;
  int64_t period = 0;
  double mask_rate = 0.15;
  int64_t eval_steps = 0;
  int64_t eval_tokens = 0;
  int64_t patience = 0;
  uint64_t seed = 0;

  /// Throws UsageError for what makes no sense, also an update of more than all tokens.
  void validate() const;
  /// Throws UsageError if the blocks are longer than a text of this number of tokens.
  void check_text(int64_t text_tokens) const;
  int64_t steps() const;  ///< tokens / batch_tokens, at least 1
  Schedule schedule() const;
};

/// Titles that options stand under.
struct OptionGroup {
  static constexpr const char* text = "Model and text";
  static constexpr const char* optimizer = "Optimizer";
  static constexpr const char* progress = "Evaluation, checkpoints, metrics";
  static constexpr const char* common = "Common";
};

template <>
inline constexpr auto options_of<TrainOptions> = std::to_array<Option<TrainOptions>>({
    {ALIBI_OPTION(TrainOptions, train_length), .group = OptionGroup::text, .range = {.least = 1},
     .help = "Number of tokens in a training sequence", .older_name = "length"},
    {ALIBI_OPTION(TrainOptions, train_tokens), .range = {.least = 1},
     .help = "Number of tokens to train on, rounded down to whole updates", .older_name = "tokens"},
    {ALIBI_OPTION(TrainOptions, batch_tokens), .range = {.least = 1},
     .help = "Number of tokens per update, rounded down to whole training sequences"},
    {ALIBI_OPTION(TrainOptions, micro_batch_tokens), .range = {.least = 1},
     .help = "Maximum number of tokens per micro-batch; smaller values save memory and change only rounding"},
    {ALIBI_OPTION(TrainOptions, mask_rate), .range = {.above = 0, .most = 1},
     .help = "Encoders: fraction of tokens to predict; 80 % are masked, 10 % replaced at random, 10 % left unchanged"},
    {ALIBI_OPTION(TrainOptions, precision),
     .help = "Data type of weights, activations and matrix products (auto selects bf16 if the CPU supports it)",
     .automatic = [] { return name_of(best_precision()); }},
    {ALIBI_OPTION(TrainOptions, recompute),
     .help = "Recompute activations in the backward pass, which saves memory and takes about a fifth more time",
     .changes_result = false},

    {ALIBI_OPTION(TrainOptions, optimizer), .group = OptionGroup::optimizer, .help = "Optimization algorithm"},
    {ALIBI_OPTION(TrainOptions, learning_rate), .range = {.above = 0}, .help = "Peak learning rate"},
    {ALIBI_OPTION_CALLED("schedule", TrainOptions, schedule_kind), .help = "Learning rate schedule after the warmup"},
    {ALIBI_OPTION(TrainOptions, warmup_fraction), .range = {.least = 0, .most = 1},
     .help = "Warmup length as a fraction of all updates", .older_name = "warmup"},
    {ALIBI_OPTION(TrainOptions, warmup_steps), .range = {.least = 0},
     .help = "Warmup length in updates, instead of --warmup-fraction", .instead_of = "warmup_fraction"},
    {ALIBI_OPTION(TrainOptions, final_fraction), .range = {.least = 0, .most = 1},
     .help = "Schedules cosine and linear: final learning rate as a fraction of the peak"},
    {ALIBI_OPTION(TrainOptions, warmup_from), .range = {.least = 0},
     .help = "Schedule fairseq: learning rate of the first update"},
    {ALIBI_OPTION(TrainOptions, floor), .range = {.least = 0}, .help = "Schedule fairseq: final learning rate"},
    {ALIBI_OPTION(TrainOptions, period), .range = {.least = 0},
     .help = "Schedule fairseq: number of updates from the peak to --floor (0 selects all updates after the warmup)"},
    {ALIBI_OPTION(TrainOptions, weight_decay), .range = {.least = 0},
     .help = "Weight decay of matrices (norms, biases, embeddings and position tables do not decay)"},
    {ALIBI_OPTION(TrainOptions, beta1), .range = {.least = 0, .below = 1},
     .help = "AdamW: decay rate of the mean gradient"},
    {ALIBI_OPTION(TrainOptions, beta2), .range = {.least = 0, .below = 1},
     .help = "AdamW: decay rate of the mean squared gradient"},
    {ALIBI_OPTION(TrainOptions, eps), .range = {.above = 0}, .help = "AdamW: constant added to the denominator"},
    {ALIBI_OPTION(TrainOptions, momentum), .range = {.least = 0, .below = 1}, .help = "NAG: momentum"},
    {ALIBI_OPTION(TrainOptions, clip), .range = {.least = 0},
     .help = "Maximum global norm of the gradient (0 disables clipping)"},

    {ALIBI_OPTION(TrainOptions, eval_steps), .group = OptionGroup::progress, .range = {.least = 0},
     .help = "Number of updates between evaluations on held-out text (0 evaluates only at the end)"},
    {ALIBI_OPTION(TrainOptions, eval_tokens), .range = {.least = 0},
     .help = "Number of held-out tokens to score in each evaluation, from the start of the text (0 scores all)"},
    {ALIBI_OPTION(TrainOptions, patience), .range = {.least = 0},
     .help = "Number of evaluations without a new best loss before training stops with the best weights (0 disables "
             "early stopping)"},

    {ALIBI_OPTION(TrainOptions, seed), .group = OptionGroup::common, .help = "Seed of all random numbers"},
});

}  // namespace alibi
