#include "attention/bias_gradient.h"

namespace alibi::kernels {

BiasGradients::BiasGradients(const Problem& problem, const BiasSums& sums)
    : problem_(problem), to_(problem.has_table() ? sums.dtable : sums.dslopes) {
  if (to_ == nullptr) return;
  const int64_t size = problem.has_table() ? problem.biases->table->rows() * problem.heads : problem.dslopes_size();
  sums_.assign(static_cast<size_t>(size), 0.0);
}

std::vector<BiasGradient> BiasGradients::of_task() const {
  if (to_ == nullptr) return {};
  const auto parameters = static_cast<size_t>(problem_.biases->of(0, 0).parameters());
  return std::vector<BiasGradient>(static_cast<size_t>(problem_.group()), BiasGradient(parameters, 0.0));
}

void BiasGradients::add(size_t sequence, int64_t kv_head, const std::vector<BiasGradient>& of_task) {
  const size_t set = problem_.biases->slopes_per_sequence && !problem_.has_table() ? sequence : 0;
  const auto heads = static_cast<size_t>(problem_.heads);
  auto head = static_cast<size_t>(kv_head * problem_.group());
  for (const BiasGradient& gradient : of_task) {
    for (size_t i = 0; i < gradient.size(); ++i) sums_[(set + i) * heads + head] += gradient[i];
    ++head;
  }
}

void BiasGradients::finish() const {
  for (size_t i = 0; i < sums_.size(); ++i) to_[i] += static_cast<float>(sums_[i]);
}

}  // namespace alibi::kernels
