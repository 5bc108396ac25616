// Optimizers: their state for each parameter, and one update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/safetensors.h"

namespace alibi::training {

/// Euclidean norm of all gradients together, in float64.
double gradient_norm(const std::vector<Parameter*>& parameters);

/// The factor that limits the norm of the gradients to `most`, as in PyTorch and fairseq. 0 means no limit.
double clip_factor(double norm, double most);

class OptimizerState {
 public:
  /// Keeps pointers to the parameters. All state starts as zeros.
  OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters);

  /// Applies update number `step`, counted from 0, with the gradients multiplied by gradient_factor.
  void update(int64_t step, double gradient_factor);

  /// The state to save, with names such as "m.blocks.0.norm_1.weight". The tensors share the optimizer's memory.
  std::vector<formats::NamedTensor> tensors() const;

 private:
  void update_those(double rate_factor, int64_t step, float gradient_factor);

  TrainOptions options_;
  Schedule schedule_;
  std::vector<Parameter*> parameters_;
  std::vector<std::string> slots_;           // names of the tensors that are kept for each parameter
  std::vector<std::vector<Tensor>> memory_;  // [slot][parameter]
};

}  // namespace alibi::training
