// The gradient of the bias: sums of the gradients of the scores (dS) by row of the table. For a slope, they are
// multiplied by their distances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// The gradient of one head.
class BiasGradient {
 public:
  explicit BiasGradient(const Problem& problem) : rows_(static_cast<size_t>(problem.biases->rows), 0.0) {}

  /// Adds the gradient of a score at a distance. A linear bias counts the distance from `nearest`, the distance of the
  /// key that is nearest to the row. Any number that is the same for all keys of a row gives the same sum, because the
  /// gradients of the row's scores sum to zero.
  void add(const Problem& problem, int64_t distance, int64_t nearest, double dscore);

 private:
  friend class BiasGradients;

  double slope_ = 0;
  std::vector<double> rows_;  ///< one for each row of the table
};

/// The gradients of all heads, if the caller wants them: float64 sums over the tasks of a backward pass.
class BiasGradients {
 public:
  BiasGradients(const Problem& problem, const BiasSums& sums);

  /// Zeros for a task to add to, one for each head that reads the key/value head. Empty if the caller does not want the
  /// gradient.
  std::vector<BiasGradient> of_task() const;
  /// Adds the gradients of a task. The order of the calls must not depend on threads.
  void add(size_t sequence, int64_t kv_head, const std::vector<BiasGradient>& of_task);
  /// Adds the sums to the caller's tensors.
  void finish() const;

 private:
  const Problem& problem_;
  BiasSums sums_;
  std::vector<double> dslopes_;  ///< [heads], or [sequences * heads] if slopes_per_sequence
  std::vector<double> dtable_;   ///< [rows of the table, heads]
};

}  // namespace alibi::kernels
