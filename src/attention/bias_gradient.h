// The gradient of the bias: sums of the gradients of the scores (dS) for each parameter of a head, such as its slope or
// the rows of its table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// The gradients of one head's parameters.
using BiasGradient = std::vector<double>;

/// The gradients of all heads, if the caller wants them: float64 sums over the tasks of a backward pass.
class BiasGradients {
 public:
  BiasGradients(const Problem& problem, const BiasSums& sums);

  /// Zeros for a task to add to, one for each head that reads the key/value head. Empty if the caller does not want the
  /// gradient.
  std::vector<BiasGradient> of_task() const;
  /// Adds the gradients of a task. The order of the calls must not depend on threads.
  void add(size_t sequence, int64_t kv_head, const std::vector<BiasGradient>& of_task);
  /// Adds the sums to the caller's tensor.
  void finish() const;

 private:
  const Problem& problem_;
  float* to_;
  std::vector<double> sums_;  ///< [parameters][heads], or [sequences][heads] if slopes_per_sequence
};

/// Adds the gradient of the gates of a head to Problem::dlog_decay. of_keys[j] = the sum of dS over the rows whose
/// position is that of key j, less that over the columns of key j.
void add_gate_gradient(const Problem& problem, const Sequence& sequence, int64_t head,
                       const std::vector<double>& of_keys);

/// Adds the gradient of the sinks to sums.dsinks, unless it is null.
void add_sink_gradient(const Problem& problem, const AttentionState& state, const BiasSums& sums);

}  // namespace alibi::kernels
