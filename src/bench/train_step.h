// A step of training as `alibi train` does it, and the matrix products in it alone.
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
  /// Throws UsageError if the model has an adaptive softmax: what its products are depends on the text.
  TrainStep(const LanguageModelConfig& config, const TrainOptions& options);

  /// One update. Returns the mean loss of its tokens before it.
  double run();

  LanguageModel& model() { return model_; }
  const TrainOptions& options() const { return options_; }

 private:
  TrainOptions options_;
  LanguageModel model_;
  std::vector<int32_t> tokens_;
  BlockOrder order_;
  std::vector<Parameter*> parameters_;
  OptimizerState optimizer_;
  int64_t step_ = 0;
};

/// Options of a step of `batch_tokens`: AdamW far from the end of its warmup, so that the model stays what it was.
TrainOptions step_options(int64_t length, int64_t batch_tokens, int64_t micro_batch_tokens);

/// The products of a step's linear layers and of its head, back to back: the same shapes, types, weights and gradients
/// (which it spoils: a step sets them to zero first); one set of activations serves all layers. Those of attention,
/// which is one operator, are not among them.
class StepProducts {
 public:
  explicit StepProducts(TrainStep& step);

  void run();
  /// Of one run: 2 for each multiplication and addition.
  double flops() const;

 private:
  struct Matrix {
    Parameter* parameter;
    int forward_passes;  // 2 where the backward pass computes the output again
  };
  void run_layers(int64_t rows);
  void run_head(int64_t rows);
  /// A [rows, columns] tensor at the beginning of the pool.
  static Tensor part(const Tensor& pool, int64_t rows, int64_t columns);

  std::vector<int64_t> rows_;  // of each micro-batch
  std::vector<Matrix> layers_;
  Parameter* head_ = nullptr;
  Tensor inputs_, outputs_, dinputs_;  // pools for the widest layer
  Tensor logits_, dlogits_;            // of a chunk of rows
};

}  // namespace alibi::bench
