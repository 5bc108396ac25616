// What training is done with: every option with its name, its help, what it takes and whether it changes the result.
// The command line, train.json, the identity of a run, validation and set_options() come from here.
#pragma once

#include "alibi/train.h"
#include "formats/option.h"

namespace alibi {

namespace training {

/// Titles that options stand under.
struct OptionGroup {
  static constexpr const char* text = "Model and text";
  static constexpr const char* optimizer = "Optimizer";
  static constexpr const char* progress = "Evaluation, checkpoints, metrics";
  static constexpr const char* common = "Common";
};

}  // namespace training

template <>
inline constexpr auto formats::options_of<TrainOptions> = std::to_array<formats::Option<TrainOptions>>({
    {ALIBI_OPTION(TrainOptions, train_length), .group = training::OptionGroup::text, .range = {.least = 1},
     .help = "Number of tokens in a training sequence"},
    {ALIBI_OPTION(TrainOptions, train_tokens), .range = {.least = 1},
     .help = "Number of tokens to train on, rounded down to whole updates"},
    {ALIBI_OPTION(TrainOptions, batch_tokens), .range = {.least = 1},
     .help = "Number of tokens per update, rounded down to whole training sequences"},
    {ALIBI_OPTION(TrainOptions, micro_batch_tokens), .range = {.least = 1},
     .help = "Maximum number of tokens per micro-batch; smaller values save memory and change only rounding",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, shards), .range = {.least = 1, .most = 4096},
     .help = "Parts of an update whose gradients are summed separately, and largest number of ranks of mpirun, which "
             "change "
             "no bit",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, sequence_ranks), .range = {.least = 1, .most = 1024},
     .help = "Ranks that divide every training sequence; mpirun starts this number of ranks or a multiple of it",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, mask_rate), .range = {.above = 0, .most = 1},
     .help = "Encoders: fraction of tokens to predict; 80 % are masked, 10 % replaced at random, 10 % left unchanged",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, precision),
     .help = "Data type of weights, activations and matrix products (auto selects the faster one on this CPU)",
     .automatic = [] { return name_of(best_precision()); }},
    {ALIBI_OPTION(TrainOptions, recompute),
     .help = "Recompute activations in the backward pass, which saves memory and takes about a fifth more time",
     .changes_result = false},

    {ALIBI_OPTION(TrainOptions, optimizer), .group = training::OptionGroup::optimizer, .help = "Optimization algorithm",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, learning_rate), .range = {.above = 0}, .help = "Peak learning rate"},
    {ALIBI_OPTION_CALLED("schedule", TrainOptions, schedule_kind), .help = "Learning rate schedule after the warmup"},
    {ALIBI_OPTION(TrainOptions, warmup_fraction), .range = {.least = 0, .most = 1},
     .help = "Warmup length as a fraction of all updates", .rare = true},
    {ALIBI_OPTION(TrainOptions, warmup_steps), .range = {.least = 0},
     .help = "Warmup length in updates, instead of --warmup-fraction", .instead_of = "warmup_fraction"},
    {ALIBI_OPTION(TrainOptions, final_fraction), .range = {.least = 0, .most = 1},
     .help = "Schedules cosine and linear: final learning rate as a fraction of the peak", .rare = true},
    {ALIBI_OPTION(TrainOptions, warmup_from), .range = {.least = 0},
     .help = "Schedule fairseq: learning rate of the first update", .rare = true},
    {ALIBI_OPTION(TrainOptions, floor), .range = {.least = 0}, .help = "Schedule fairseq: final learning rate",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, period), .range = {.least = 0},
     .help = "Schedule fairseq: number of updates from the peak to --floor (0 selects all updates after the warmup)",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, weight_decay), .range = {.least = 0},
     .help = "Weight decay of matrices (norms, biases, embeddings and position tables do not decay)"},
    {ALIBI_OPTION(TrainOptions, beta1), .range = {.least = 0, .below = 1},
     .help = "AdamW: decay rate of the mean gradient", .rare = true},
    {ALIBI_OPTION(TrainOptions, beta2), .range = {.least = 0, .below = 1},
     .help = "AdamW: decay rate of the mean squared gradient", .rare = true},
    {ALIBI_OPTION(TrainOptions, eps), .range = {.above = 0}, .help = "AdamW: constant added to the denominator",
     .rare = true},
    {ALIBI_OPTION(TrainOptions, momentum), .range = {.least = 0, .below = 1}, .help = "NAG: momentum", .rare = true},
    {ALIBI_OPTION(TrainOptions, clip), .range = {.least = 0},
     .help = "Maximum global norm of the gradient (0 disables clipping)"},

    {ALIBI_OPTION(TrainOptions, eval_steps), .group = training::OptionGroup::progress, .range = {.least = 0},
     .help = "Number of updates between evaluations on held-out text (0 evaluates only at the end)"},
    {ALIBI_OPTION(TrainOptions, eval_tokens), .range = {.least = 0},
     .help = "Number of held-out tokens to score, in blocks spread evenly over the text (0 scores all)"},
    {ALIBI_OPTION(TrainOptions, patience), .range = {.least = 0},
     .help = "Number of evaluations without a new best loss before training stops with the best weights (0 disables "
             "early stopping)"},

    {ALIBI_OPTION(TrainOptions, seed), .group = training::OptionGroup::common, .help = "Seed of all random numbers"},
});

template <>
inline constexpr auto formats::options_of<TrainRun> = std::to_array<formats::Option<TrainRun>>({
    {ALIBI_OPTION(TrainRun, checkpoint_steps), .group = training::OptionGroup::progress, .range = {.least = 0},
     .help = "Number of updates between checkpoints (0 writes checkpoints by time only)", .changes_result = false,
     .rare = true},
    {ALIBI_OPTION(TrainRun, checkpoint_minutes), .range = {.least = 0},
     .help = "Minutes between checkpoints (0 writes checkpoints by updates only)", .changes_result = false},
    {ALIBI_OPTION(TrainRun, keep), .range = {.least = 1},
     .help = "Number of newest checkpoints to keep; the best checkpoint is always kept", .changes_result = false,
     .rare = true},
    {ALIBI_OPTION(TrainRun, log_steps), .range = {.least = 1},
     .help = "Number of updates between lines of metrics.jsonl", .changes_result = false, .rare = true},
});

}  // namespace alibi
