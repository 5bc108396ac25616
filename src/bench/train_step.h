// A training step as in `alibi train`.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/train.h"
#include "train/batches.h"
#include "train/optimizer.h"

namespace alibi::bench {

/// Token i of a stream without structure in which every token occurs: floor(vocab_size * frac(i * 0.618...)).
std::vector<int32_t> golden_ratio_tokens(int64_t count, int64_t vocab_size);

/// A model that is trained on such tokens: zero gradients, forward, backward, clipping, optimizer, rounding of weights.
class TrainStep {
 public:
  /// Throws UsageError if the model has an adaptive softmax, because its products depend on the text.
  TrainStep(const LanguageModelConfig& config, const TrainOptions& options);

  /// Does one update. Returns the mean loss of its tokens before the update.
  double run();

  LanguageModel& model() { return model_; }
  const TrainOptions& options() const { return options_; }

 private:
  TrainOptions options_;
  LanguageModel model_;
  std::vector<int32_t> tokens_;
  training::BlockOrder order_;
  std::vector<Parameter*> parameters_;
  training::OptimizerState optimizer_;
  int64_t step_ = 0;
};

/// Options for steps of `batch_tokens`. AdamW is at the start of a long warmup, so the weights hardly change.
TrainOptions step_options(int64_t length, int64_t batch_tokens, int64_t micro_batch_tokens);

}  // namespace alibi::bench
