// Training a language model on a stream of tokens. docs/reference/training.md describes the options,
// docs/reference/model-folder.md the files.
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

/// The ALiBi paper's training on WikiText-103: 286,000 updates of 73,728 tokens at length 512, NAG with momentum 0.99,
/// clipping at 0.1, warmup from 1e-7 to 1 over 16,000 updates, then a cosine to 1e-4 over 270,000.
ALIBI_API TrainOptions paper_recipe();
/// Default training options of a preset; those of wikitext103 are the paper's recipe. Throws UsageError with the valid
/// names.
ALIBI_API TrainOptions training_defaults(std::string_view preset);

/// FLOPs per token in training: 6 for each parameter that the token is multiplied by, and attention over half the
/// length on average (Chowdhery et al. 2022, appendix B). Lookups of embeddings and positions and recomputation do not
/// count; the output projection counts, tied or not. With adaptive input a token is multiplied by the projection of its
/// band, and with adaptive softmax by the first table and, if the target is in another band, by the projection and
/// table of that band. `tokens` are the tokens of the training, from which the frequency of each band is counted.
/// Without them every token counts as one of the most expensive band, which gives an upper bound.
ALIBI_API double training_flops_per_token(const LanguageModelConfig& config, int64_t length,
                                          std::span<const int32_t> tokens = {});

/// Cost of a run, predicted before anything is allocated.
struct TrainPlan {
  int64_t parameters = 0;
  int64_t updates = 0;
  int64_t tokens = 0;
  double flops_per_token = 0;  ///< training_flops_per_token(); an upper bound with an adaptive softmax
  // Bytes.
  int64_t weights = 0;      ///< float32, and their bfloat16 copies in bf16 precision
  int64_t gradients = 0;    ///< float32
  int64_t optimizer = 0;    ///< moments
  int64_t activations = 0;  ///< stored from the forward to the backward pass of a micro-batch
  int64_t workspace = 0;    ///< temporary memory of both passes: residual stream, a chunk of logits, attention, partial
                            ///< sums
  int64_t bytes() const { return weights + gradients + optimizer + activations + workspace; }
};
ALIBI_API TrainPlan plan_training(const LanguageModelConfig& config, const TrainOptions& options);

/// Estimated seconds of the whole run. Times micro-batches of at most 1024 tokens (or one block) in one layer, and of
/// at most 512 in the vocabulary, which takes some seconds and the memory of these. `progress` is called with the
/// finished fraction.
ALIBI_API double estimate_seconds(const LanguageModelConfig& config, const TrainOptions& options,
                                  const std::function<void(double)>& progress = {});

struct TrainStatus {
  int64_t step = 0;  ///< updates done
  int64_t steps = 0;
  int64_t tokens = 0;
  double loss = 0;  ///< mean nll (nats) of this update's tokens
  double learning_rate = 0;
  double gradient_norm = 0;      ///< before clipping
  double seconds = 0;            ///< seconds of training so far, including those before a resume
  double tokens_per_second = 0;  ///< over the last updates
  double seconds_left = 0;
  int64_t memory_bytes = 0;          ///< peak_resident_bytes()
  std::optional<double> valid_loss;  ///< held-out nll, if measured after this update
  bool best = false;                 ///< valid_loss is the lowest so far
};

/// Held-out nll after `step` updates.
struct TrainEvaluation {
  int64_t step = 0;
  double loss = 0;
};

/// Settings of a run that do not change its result.
struct TrainRun {
  /// Model folder for checkpoints, metrics and the loss figure (docs/reference/model-folder.md); if empty, nothing is
  /// written.
  std::filesystem::path folder;
  /// Continue from the newest intact checkpoint of the folder, or begin if there is none.
  bool resume = false;
  /// Replace the run or the model in the folder, which stay intact until the first checkpoint is written. Without this
  /// option such a folder is refused.
  bool overwrite = false;
  std::string settings;            ///< content of train.json, written when a run begins; empty: not written
  int64_t checkpoint_steps = 0;    ///< updates between checkpoints; 0: by time only
  double checkpoint_minutes = 10;  ///< minutes between checkpoints; 0: by updates only
  int64_t keep = 2;                ///< number of newest checkpoints to keep; the best one is always kept
  int64_t log_steps = 1;           ///< updates between lines of metrics.jsonl
  std::span<const int32_t> valid;  ///< held-out tokens, for eval_steps
  /// Called once with `resume`, before the first update: the updates that the checkpoint has (0: there is none, so the
  /// run begins), and whether the run is finished. Not called if the checkpoint is refused.
  std::function<void(int64_t step, bool finished)> on_resume;
  std::function<void(const TrainStatus&)> on_step;
  /// Called with the number of updates when a checkpoint has been written.
  std::function<void(int64_t step)> on_checkpoint;
  /// Called with problems that do not stop the training: a damaged checkpoint, which is replaced by an older one, or a
  /// folder that was removed during the run, which is written again.
  std::function<void(std::string_view)> on_warning;
  /// Called after each update. If it returns true, a checkpoint is written and train() returns.
  std::function<bool()> should_stop;
};

enum class TrainEnd : uint8_t {
  all_tokens,  ///< all updates are done
  no_gain,     ///< `patience` evaluations gave no new best loss; the model has the best weights
  asked,       ///< should_stop returned true; the run can be resumed
};

struct TrainResult {
  int64_t tokens = 0;
  int64_t steps = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  std::vector<float> loss;  ///< mean nll of each update
  std::vector<TrainEvaluation> evaluations;
  std::optional<TrainEvaluation> best;  ///< the best of `evaluations`
  int64_t weights_step = 0;             ///< number of updates behind the model's weights: `steps`, or that of the best
                                        ///< weights
  int64_t resumed_step = 0;             ///< number of updates done before this call
  TrainEnd end = TrainEnd::all_tokens;
};

/// Cuts the stream into contiguous blocks of `length` tokens (the last may be shorter) and trains on them. The targets
/// are the block, and the inputs are the block shifted by one in the stream: block k starts with the last token of
/// block k - 1, and the stream starts after an end of text. Each token is predicted once per epoch. (seed, epoch)
/// determine the order of the blocks. An encoder receives the block itself and predicts mask_rate of its tokens: 80 %
/// of these are masked, 10 % replaced by random tokens, 10 % left unchanged (Devlin et al. 2019, section 3.1). The
/// choice is redrawn for each update. Gradients are averaged over the update's tokens and clipped by their global norm.
/// Throws NotFiniteError with the step if the loss, or the model after the last update, is no longer finite; existing
/// checkpoints stay. After the call the model computes in float32. Deterministic: the same model, tokens and options
/// give the same bits at any number of threads, and also if the run was killed and resumed. Throws Error if the
/// checkpoint has other tokens, another model or other options, and names the difference.
ALIBI_API TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                            const TrainRun& run);
ALIBI_API TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                            const std::function<void(const TrainStatus&)>& on_step = {});

/// The newest intact checkpoint of a model folder.
struct CheckpointInfo {
  std::filesystem::path folder;
  int64_t step = 0;
  bool finished = false;
  Precision precision = Precision::f32;  ///< of the run. A run that resumes keeps it; best_precision() may have changed
  std::vector<std::string> damaged;      ///< the problem of each newer checkpoint that is not intact
};
/// Reads the whole checkpoint to verify it. Throws Error if there are checkpoints but none is intact, or if a newer
/// version of alibi wrote the newest one.
ALIBI_API std::optional<CheckpointInfo> newest_checkpoint(const std::filesystem::path& model_folder);

/// Throws UsageError if the folder holds a finished run or a model, and Error if it holds a run that can be resumed.
/// train() makes the same check unless TrainRun has `resume` or `overwrite`; call this before long work.
ALIBI_API void check_folder_is_free(const std::filesystem::path& model_folder);

}  // namespace alibi
