// The gradient of the bias: the gradients of the scores (dS) summed by bucket, or times their distances for a slope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// Of one head.
class BiasGradient {
 public:
  explicit BiasGradient(const Problem& problem) : buckets_(static_cast<size_t>(problem.num_buckets), 0.0) {}

  /// Takes in the gradient of the scores at a distance, which a linear bias counts from `nearest` on: the distance of
  /// the keys that are nearest to the row. (Any number does that is the same for all keys of the row, since the
  /// gradients of its scores sum to zero.)
  void add(const Problem& problem, int64_t distance, int64_t nearest, double dscore);

 private:
  friend class BiasGradients;

  double slope_ = 0;
  std::vector<double> buckets_;
};

/// Of all heads, if anyone asked: float64 sums of what the tasks of a backward pass found.
class BiasGradients {
 public:
  BiasGradients(const Problem& problem, const BiasSums& sums);

  /// For a task to add to: zeros for each head that reads one key/value head, or nothing if nobody asked.
  std::vector<BiasGradient> of_task() const;
  /// Takes in what a task found. Calls must come in an order that does not depend on threads.
  void add(size_t sequence, int64_t kv_head, const std::vector<BiasGradient>& of_task);
  /// Adds the sums to what the caller gave.
  void finish() const;

 private:
  const Problem& problem_;
  BiasSums sums_;
  std::vector<double> dslopes_;  ///< [heads], or [batch * heads] if slopes_per_batch
  std::vector<double> dtable_;   ///< [num_buckets, heads]
};

}  // namespace alibi::kernels
