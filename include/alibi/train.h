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
#include "alibi/train_options.h"

namespace alibi {

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
  /// Continue from the newest whole checkpoint of the folder; if there is none yet, begin.
  bool resume = false;
  /// Replace the run or the model that the folder holds; they stay whole until the first checkpoint is written. Without
  /// it such a folder is refused.
  bool overwrite = false;
  std::string settings;  ///< written to train.json of the folder when a run begins; empty: not written
  // Described below.
  int64_t checkpoint_steps = 0;
  double checkpoint_minutes = 10;
  int64_t keep = 2;
  int64_t log_steps = 1;
  std::span<const int32_t> valid;  ///< held-out tokens, for eval_steps
  std::function<void(const TrainStatus&)> on_step;
  /// Told what went wrong but not so far that training cannot go on: a damaged checkpoint, in whose place an older one
  /// is taken; a folder that was removed meanwhile, and is written again.
  std::function<void(std::string_view)> on_warning;
  /// Asked after each update; true: a checkpoint is written and training returns.
  std::function<bool()> should_stop;
};

template <>
inline constexpr auto options_of<TrainRun> = std::to_array<Option<TrainRun>>({
    {ALIBI_OPTION(TrainRun, checkpoint_steps), .group = OptionGroup::progress, .range = {.least = 0},
     .help = "Number of updates between checkpoints (0 writes checkpoints by time only)", .changes_result = false},
    {ALIBI_OPTION(TrainRun, checkpoint_minutes), .range = {.least = 0},
     .help = "Minutes between checkpoints (0 writes checkpoints by updates only)", .changes_result = false},
    {ALIBI_OPTION(TrainRun, keep), .range = {.least = 1},
     .help = "Number of newest checkpoints to keep; the best checkpoint is always kept", .changes_result = false},
    {ALIBI_OPTION(TrainRun, log_steps), .range = {.least = 1},
     .help = "Number of updates between lines of metrics.jsonl", .changes_result = false},
});

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
/// An encoder gets the block itself, with mask_rate of its tokens to be predicted: 80 % of these are masked, 10 % are
/// other tokens, 10 % themselves (Devlin et al. 2019, section 3.1); which, is drawn anew for each update.
/// Gradients are averaged over the update's tokens and clipped by their global norm.
/// Throws NotFiniteError naming the step if the loss, or what the last update left of the model, is no longer finite;
/// the checkpoints that there are stay. Afterwards the model computes in float32.
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

/// Throws UsageError if the folder holds a finished run or a model, Error if it holds a run that can be resumed: what
/// train() does unless TrainRun says `resume` or `overwrite`, for those who do long work before.
ALIBI_API void check_folder_is_free(const std::filesystem::path& model_folder);

}  // namespace alibi
