// A step of training as `alibi train` does it.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/train.h"
#include "train/batches.h"
#include "train/optimizer.h"

namespace alibi::bench {

/// Token i of a stream without structure in which every token occurs: floor(vocab_size * frac(i * 0.618...)).
std::vector<int32_t> golden_ratio_tokens(int64_t count, int64_t vocab_size);

/// A model in training on such tokens: zero gradients, forward, backward, clipping, optimizer, weights rounded.
class TrainStep {
 public:
  /// Throws UsageError if the model has an adaptive softmax, because its products depend on the text.
  TrainStep(const LanguageModelConfig& config, const TrainOptions& options);

  /// One update. Returns the mean loss of its tokens before it.
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

/// Options of a step of `batch_tokens`. AdamW is at the beginning of a long warmup, so the weights hardly change.
TrainOptions step_options(int64_t length, int64_t batch_tokens, int64_t micro_batch_tokens);

}  // namespace alibi::bench
