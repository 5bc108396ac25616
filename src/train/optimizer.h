// Optimizers: what they remember of each parameter, and one update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/safetensors.h"

namespace alibi::training {

/// Euclidean norm of all gradients together, in float64.
double gradient_norm(const std::vector<Parameter*>& parameters);

/// What gradients are multiplied with so that their norm is at most `most` (0: any), as PyTorch and fairseq do it.
double clip_factor(double norm, double most);

class OptimizerState {
 public:
  /// Keeps pointers to the parameters. Everything starts as zeros.
  OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters);

  /// Applies the gradients, each multiplied by gradient_factor, as update number `step`, counted from 0.
  void update(int64_t step, double gradient_factor);

  /// All there is to save, by names such as "m.blocks.0.norm_1.weight"; the tensors are shared, not copied.
  std::vector<formats::NamedTensor> tensors() const;

 private:
  void update_those(double rate_factor, int64_t step, float gradient_factor);

  TrainOptions options_;
  Schedule schedule_;
  std::vector<Parameter*> parameters_;
  std::vector<std::string> slots_;           // names of what is kept of each parameter
  std::vector<std::vector<Tensor>> memory_;  // [slot][parameter]
};

}  // namespace alibi::training
