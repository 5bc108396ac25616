// Optimizers: their state for each parameter, and one update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/safetensors.h"
#include "train/owners.h"

namespace alibi::training {

/// Euclidean norm of all gradients together, in float64.
double gradient_norm(const std::vector<Parameter*>& parameters);

/// The factor that limits the norm of the gradients to `most`, as in PyTorch and fairseq. 0 means no limit.
double clip_factor(double norm, double most);

class OptimizerState {
 public:
  /// Keeps pointers to the parameters. All state starts as zeros.
  OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters);
  /// Updates only the parts of the parameters that rank `rank` owns, and has the state of these alone.
  OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters, const Owners& owners, int rank);

  /// Applies update number `step`, counted from 0, with the gradients multiplied by gradient_factor.
  void update(int64_t step, double gradient_factor);

  /// The state, with names such as "m.blocks.0.norm_1.weight". The tensors share the optimizer's memory. A tensor may
  /// be a part of that name's.
  std::vector<formats::NamedTensor> tensors() const;
  /// The whole state to save. With a group, each tensor is received from all ranks when it is made, and these ranks
  /// must call send_all().
  std::vector<formats::StreamedTensor> to_write(ranks::Group* group) const;
  void send_all(ranks::Group& group) const;
  void load(const formats::WeightSource& file);

 private:
  void update_those(double rate_factor, int64_t step, float gradient_factor);

  TrainOptions options_;
  Schedule schedule_;
  std::vector<Parameter*> parameters_;
  std::string name_of(size_t slot, size_t parameter) const;
  void allocate();
  Tensor gathered(ranks::Group& group, size_t slot, size_t parameter) const;

  std::vector<std::string> slots_;           // names of the tensors that are kept for each parameter
  const Owners* owners_ = nullptr;           // null: this rank owns everything
  std::vector<ParameterRange> parts_;        // that are updated here: whole parameters if this rank owns everything
  std::vector<std::vector<Tensor>> memory_;  // [slot][part]
};

}  // namespace alibi::training
