#include "attention/bias_gradient.h"

#include <cstdlib>

namespace alibi::kernels {

void BiasGradient::add(const Problem& problem, int64_t distance, int64_t nearest, double dscore) {
  if (problem.has_table()) {
    rows_[static_cast<size_t>(problem.biases->row(distance))] += dscore;
  } else if (distance > 0 || problem.biases->slopes_symmetric) {
    slope_ -= dscore * static_cast<double>(std::abs(distance) - nearest);
  }
}

BiasGradients::BiasGradients(const Problem& problem, const BiasSums& sums) : problem_(problem), sums_(sums) {
  if (sums.dslopes != nullptr) dslopes_.assign(static_cast<size_t>(problem.dslopes_size()), 0.0);
  if (sums.dtable != nullptr) dtable_.assign(static_cast<size_t>(problem.biases->rows * problem.heads), 0.0);
}

std::vector<BiasGradient> BiasGradients::of_task() const {
  if (sums_.dslopes == nullptr && sums_.dtable == nullptr) return {};
  return std::vector<BiasGradient>(static_cast<size_t>(problem_.group()), BiasGradient(problem_));
}

void BiasGradients::add(size_t sequence, int64_t kv_head, const std::vector<BiasGradient>& of_task) {
  const int64_t set = problem_.biases->slopes_per_sequence ? static_cast<int64_t>(sequence) : 0;
  int64_t head = kv_head * problem_.group();
  for (const BiasGradient& gradient : of_task) {
    if (sums_.dslopes != nullptr) dslopes_[static_cast<size_t>(set * problem_.heads + head)] += gradient.slope_;
    for (size_t row = 0; sums_.dtable != nullptr && row < gradient.rows_.size(); ++row) {
      dtable_[row * static_cast<size_t>(problem_.heads) + static_cast<size_t>(head)] += gradient.rows_[row];
    }
    ++head;
  }
}

void BiasGradients::finish() const {
  for (size_t i = 0; i < dslopes_.size(); ++i) sums_.dslopes[i] += static_cast<float>(dslopes_[i]);
  for (size_t i = 0; i < dtable_.size(); ++i) sums_.dtable[i] += static_cast<float>(dtable_[i]);
}

}  // namespace alibi::kernels
