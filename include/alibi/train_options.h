// What training is done with. docs/reference/training.md has the defaults of each preset and the ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "alibi/export.h"
#include "alibi/model_options.h"
#include "alibi/option_value.h"
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

/// Which preset has other defaults: training_defaults(). The default of a new option is what was done before there was
/// one, because checkpoints without it were written with that. Lengths and sizes of batches count tokens.
struct ALIBI_API TrainOptions {
  int64_t train_length = 128;         ///< length of a training sequence
  int64_t train_tokens = 1'000'000;   ///< tokens to train on, rounded down to whole updates
  int64_t batch_tokens = 8192;        ///< tokens per update, rounded down to whole training sequences
  int64_t micro_batch_tokens = 4096;  ///< at most this many at once; fewer save memory and change only rounding
  int64_t shards = 1;  ///< groups of sequences whose gradients are summed apart; any number of ranks up to this one
                       ///< gives the same bits
  int64_t sequence_ranks = 1;            ///< ranks that divide each sequence; the number of ranks is a multiple of it
  Precision precision = Precision::f32;  ///< of weights, activations and matrix products
  bool recompute = false;                ///< recompute activations in the backward pass: less memory, a fifth more time
  Optimizer optimizer = Optimizer::adamw;  ///< algorithm of an update
  double weight_decay = 0.1;               ///< of matrices; norms, biases, embeddings and position tables do not decay
  double beta1 = 0.9;                      ///< AdamW: decay rate of the mean gradient
  double beta2 = 0.98;                     ///< AdamW: decay rate of the mean squared gradient
  double eps = 1e-8;                       ///< AdamW: added to the denominator
  double momentum = 0.99;                  ///< NAG
  double clip = 1.0;                       ///< largest global norm of the gradient; 0: no clipping
  ScheduleKind schedule_kind = ScheduleKind::cosine;  ///< learning rate after the warmup
  double learning_rate = 2e-3;                        ///< peak
  double warmup_fraction = 0.05;                      ///< length of the warmup as a fraction of all updates
  int64_t warmup_steps = -1;                          ///< length of the warmup in updates; -1: by warmup_fraction
  double final_fraction = 0.1;                        ///< cosine, linear: final learning rate / peak
  double warmup_from = 1e-7;                          ///< fairseq: learning rate of the first update
  double floor = 1e-4;                                ///< fairseq: final learning rate
  int64_t period = 0;       ///< fairseq: updates from the peak to the floor; 0: all after the warmup
  double mask_rate = 0.15;  ///< encoders: fraction of tokens to predict
  int64_t eval_steps = 0;   ///< updates between evaluations on held-out text; 0: only at the end
  int64_t eval_tokens = 0;  ///< held-out tokens of each evaluation, in blocks spread evenly over the text; 0: all
  int64_t patience = 0;     ///< evaluations without a new best loss before training stops; 0: never
  uint64_t seed = 0;        ///< of all random numbers

  /// Throws UsageError for what makes no sense, also an update of more than all tokens.
  void validate() const;
  /// Throws UsageError if the blocks are longer than a text of this number of tokens.
  void check_text(int64_t text_tokens) const;
  int64_t steps() const;  ///< tokens / batch_tokens, at least 1
  Schedule schedule() const;
};

/// Sets options of training and of the model by name, for callers that have names and values as data. `value(name,
/// like)` gives the value of a name in the type of `like`. The precision is chosen for the
/// machine unless it is named. Throws UsageError, which begins with `operation`, for an unknown name, two names of one
/// option, an unknown choice and a number out of range.
ALIBI_API void set_options(TrainOptions& options, ModelOptions& model, std::span<const std::string> names,
                           const std::function<OptionValue(const std::string& name, const OptionValue& like)>& value,
                           const char* operation);

}  // namespace alibi
