// The matrix products of a training step without the rest of the step.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/train.h"

namespace alibi::bench {

/// Runs the matrix products of the linear layers and of the output matrix in one step, with the functions that the
/// layers use and the model's weights and gradients. All layers share one set of activations. Products inside attention
/// are not included.
class StepProducts {
 public:
  /// The model must have gradients, must outlive this object and must not have an adaptive softmax.
  StepProducts(LanguageModel& model, const TrainOptions& options, uint64_t seed);

  /// Adds to the gradients. A training step sets them to zero first.
  void run();

  /// FLOPs of one run. A multiplication and an addition count as two.
  double flops() const;

 private:
  Tensor matrix(const Tensor& memory, int64_t rows, int64_t columns) const;
  void run_layer(const Parameter& weight, int64_t rows);
  void run_layer_backward(Parameter& weight, int64_t rows);
  void run_head(int64_t rows);
  bool is_recomputed(const Parameter& weight) const;

  bool recompute_;
  std::vector<int64_t> micro_batches_;  ///< number of rows in each
  std::vector<Parameter*> layers_;      ///< in the order of the forward pass
  Parameter* head_ = nullptr;
  Tensor x_, y_, dx_, logits_;  ///< memory shared by all layers
};

}  // namespace alibi::bench
