// Training a language model on a stream of tokens. docs/training.md says what the files and the numbers are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"

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

struct ALIBI_API TrainOptions {
  int64_t length = 128;                  ///< tokens of a block: the training length
  int64_t tokens = 1'000'000;            ///< tokens to train on in all; updates = tokens / batch_tokens
  int64_t batch_tokens = 8192;           ///< of an update, whatever the length (rounded to whole blocks, at least one)
  int64_t micro_batch_tokens = 4096;     ///< at most this many at once; the gradients of the parts are summed
  Precision precision = Precision::f32;  ///< of weights, activations and products (Transformer::set_precision)
  bool recompute = false;                ///< less memory, more time, the same bits (Transformer::set_recompute)
  Optimizer optimizer = Optimizer::adamw;
  double weight_decay = 0.1;  ///< matrices only
  double beta1 = 0.9;         ///< AdamW
  double beta2 = 0.98;        ///< AdamW
  double eps = 1e-8;          ///< AdamW
  double momentum = 0.99;     ///< NAG
  double clip = 1.0;          ///< largest global norm of the gradient; 0: no clipping
  ScheduleKind schedule_kind = ScheduleKind::cosine;
  double learning_rate = 2e-3;    ///< peak
  double warmup_fraction = 0.05;  ///< part of the updates with rising rate, where warmup_steps is not given
  int64_t warmup_steps = -1;      ///< -1: by warmup_fraction
  double final_fraction = 0.1;    ///< see Schedule for these
  double warmup_from = 1e-7;
  double floor = 1e-4;
  int64_t period = 0;
  int64_t eval_steps = 0;   ///< updates between two evaluations on held-out tokens; 0: none
  int64_t eval_tokens = 0;  ///< held-out tokens to score, from the beginning; 0: all
  int64_t patience = 0;     ///< stop after so many evaluations without a new best, and keep the best; 0: never
  uint64_t seed = 0;        ///< order of the blocks, dropout

  /// Throws UsageError for what makes no sense, also an update of more than all tokens.
  void validate() const;
  /// Throws UsageError if the blocks are longer than a text of so many tokens.
  void check_text(int64_t text_tokens) const;
  int64_t steps() const;
  Schedule schedule() const;
};

/// How the ALiBi paper trained on WikiText-103: 286,000 updates of 73,728 tokens at length 512, NAG with momentum 0.99,
/// clipping at 0.1, warmup from 1e-7 to 1 over 16,000 updates, then a cosine to 1e-4 over 270,000.
ALIBI_API TrainOptions paper_recipe();
/// What a preset is trained with when the user says nothing; wikitext103 by the paper's recipe. Throws UsageError with
/// the names to choose from.
ALIBI_API TrainOptions training_defaults(std::string_view preset);

/// FLOPs of one token in training: 6 for each parameter that it is multiplied by, and attention over half the length on
/// average (Chowdhery et al. 2022, appendix B). Tables of embeddings and positions that are looked up count nothing,
/// the output projection counts, tied or not, and nothing is counted for what is computed again. With adaptive input
/// and softmax a token is multiplied by the projection of its band on the way in; on the way out by the first table,
/// and by projection and table of the target's band if that is another. `tokens`, those trained on, tell how often each
/// band is met; where there are none, every token is taken for one of the dearest band, which is an upper bound.
ALIBI_API double training_flops_per_token(const LanguageModelConfig& config, int64_t length,
                                          std::span<const int32_t> tokens = {});

/// What a run will take, known before anything is allocated.
struct TrainPlan {
  int64_t parameters = 0;
  int64_t updates = 0;
  int64_t tokens = 0;
  double flops_per_token = 0;  ///< training_flops_per_token; with an adaptive softmax its upper bound
  // Bytes.
  int64_t weights = 0;      ///< float32, and their bfloat16 copies in bf16 precision
  int64_t gradients = 0;    ///< float32
  int64_t optimizer = 0;    ///< moments
  int64_t activations = 0;  ///< kept from the forward to the backward pass of a micro-batch
  int64_t workspace = 0;    ///< what both passes work in: streams, a chunk of logits, attention, partial sums
  int64_t bytes() const { return weights + gradients + optimizer + activations + workspace; }
};
ALIBI_API TrainPlan plan_training(const LanguageModelConfig& config, const TrainOptions& options);

/// Seconds of the whole run, from micro-batches of at most 1024 tokens (or one block) through a layer, and of at most
/// 512 through the vocabulary. Takes some seconds, and the memory of either. `progress` gets the part of them that is
/// over.
ALIBI_API double estimate_seconds(const LanguageModelConfig& config, const TrainOptions& options,
                                  const std::function<void(double)>& progress = {});

struct TrainStatus {
  int64_t step = 0;  ///< updates done
  int64_t steps = 0;
  int64_t tokens = 0;
  double loss = 0;  ///< mean nll (nats) of this update's tokens
  double learning_rate = 0;
  double gradient_norm = 0;      ///< before clipping
  double seconds = 0;            ///< of training so far, what was done before a resume included
  double tokens_per_second = 0;  ///< over the last updates
  double seconds_left = 0;
  int64_t memory_bytes = 0;          ///< peak_resident_bytes()
  std::optional<double> valid_loss;  ///< held-out nll, if it was measured after this update
  bool best = false;                 ///< and is the lowest so far
};

/// Held-out nll after `step` updates.
struct TrainEvaluation {
  int64_t step = 0;
  double loss = 0;
};

/// Everything about a run that does not change its result.
struct TrainRun {
  /// Model folder for checkpoints, metrics and the loss figure (docs/training.md); empty: nothing is written.
  std::filesystem::path folder;
  /// Continue from the newest whole checkpoint of the folder; if there is none yet, begin. Without it a folder with a
  /// run that is not finished is refused.
  bool resume = false;
  std::string settings;            ///< written to train.json of the folder when a run begins; empty: not written
  int64_t checkpoint_steps = 0;    ///< updates between two checkpoints; 0: by time alone
  double checkpoint_minutes = 10;  ///< minutes between two checkpoints; 0: by updates alone
  int64_t keep = 2;                ///< newest checkpoints that stay; the one with the best held-out loss always does
  int64_t log_steps = 1;           ///< updates between two entries of the metrics
  std::span<const int32_t> valid;  ///< held-out tokens, for eval_steps
  std::function<void(const TrainStatus&)> on_step;
  /// Told what went wrong but not so far that training cannot go on: a damaged checkpoint, in whose place an older one
  /// is taken.
  std::function<void(std::string_view)> on_warning;
  /// Asked after each update; true: a checkpoint is written and training returns.
  std::function<bool()> should_stop;
};

enum class TrainEnd : uint8_t {
  all_tokens,  ///< the updates asked for are done
  no_gain,     ///< `patience` evaluations brought no new best; the model holds the best weights
  asked,       ///< should_stop said so; the run can be resumed
};

struct TrainResult {
  int64_t tokens = 0;
  int64_t steps = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  std::vector<float> loss;  ///< mean nll of each update
  std::vector<TrainEvaluation> evaluations;
  std::optional<TrainEvaluation> best;  ///< of the evaluations
  int64_t weights_step = 0;             ///< updates that the model's weights have seen: steps, or those of the best
  int64_t resumed_step = 0;             ///< updates that were done before this call
  TrainEnd end = TrainEnd::all_tokens;
};

/// Trains on the stream cut into contiguous blocks of `length` (the last may be shorter): targets are the block, inputs
/// the same shifted by one IN THE STREAM (block k starts with the last token of block k - 1; the stream starts after an
/// end of text). Each token is predicted once per epoch; the order of the blocks is shuffled from (seed, epoch).
/// Gradients are averaged over the update's tokens and clipped by their global norm.
/// Throws Error naming the step if the loss stops being a number. Afterwards the model computes in float32.
/// Deterministic: same model, tokens and options give the same bits at any number of threads, and a run that was killed
/// and resumed gives the bits of one that was not. Throws Error if the checkpoint is of other tokens, another model or
/// other options, and says which.
ALIBI_API TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                            const TrainRun& run);
ALIBI_API TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                            const std::function<void(const TrainStatus&)>& on_step = {});

/// Updates done by the newest whole checkpoint of a model folder, and whether its run was finished then.
struct CheckpointInfo {
  std::filesystem::path folder;
  int64_t step = 0;
  bool finished = false;
  std::vector<std::string> damaged;  ///< newer ones that are not whole: what is wrong with each
};
/// Reads all of the checkpoint to see that it is whole. Throws Error if there are some and none is whole, or if a newer
/// version wrote the newest.
ALIBI_API std::optional<CheckpointInfo> newest_checkpoint(const std::filesystem::path& model_folder);

}  // namespace alibi
