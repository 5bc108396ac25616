#include "attention/bias_gradient.h"

#include <numeric>

#include "core/parallel.h"

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

void add_gate_gradient(const Problem& problem, const Sequence& sequence, int64_t head,
                       const std::vector<double>& of_keys) {
  // The gate of key t is in the scores of rows i and keys j with i >= t > j: the sum of dS over these pairs is that of
  // the rows from t on, less that of the columns from t on.
  const HeadDecay decay = problem.bias(sequence, head).decay;
  double sum = 0;
  for (int64_t key = sequence.keys - 1; key >= 0; --key) {
    sum += of_keys[static_cast<size_t>(key)];
    if (decay.document(key) == key) {  // no pair reaches over it
      sum = 0;
      continue;
    }
    const int64_t row = sequence.batch * problem.keys + sequence.key_begin + key;
    problem.dlog_decay[row * problem.heads + head] += static_cast<float>(sum);
  }
}

void add_sink_gradient(const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  if (sums.dsinks == nullptr) return;
  // A sink's value is zero, so the gradient of its score is -weight delta, with delta = rowsum(dout out).
  constexpr int64_t rows_together = 256;  // sums of this many rows are added in order, whatever the number of threads
  const float* lse = state.lse.data<float>();
  for (const Sequence& sequence : problem.sequences) {
    const int64_t parts = core::ceil_div(sequence.queries, rows_together);
    std::vector<double> of_parts(static_cast<size_t>(problem.heads * parts), 0.0);
    core::parallel_for(problem.heads * parts, [&](int64_t task) {
      const int64_t head = task / parts, first = task % parts * rows_together;
      const auto sink = static_cast<double>(problem.sink(head));
      for (int64_t i = first; i < std::min(first + rows_together, sequence.queries) && std::isfinite(sink); ++i) {
        const int64_t row = sequence.query_begin + i;
        double delta = 0;
        for (int64_t d = 0; d < problem.head_dim; ++d) {
          const auto at = [&](const TensorView& view) {
            const int64_t offset = view.offset(sequence.batch, row, head) + d;
            return static_cast<double>(load_value(problem.dtype, view.data, offset));
          };
          delta += at(problem.dout) * at(problem.out);
        }
        const auto log = static_cast<double>(lse[(sequence.batch * problem.heads + head) * problem.queries + row]);
        of_parts[static_cast<size_t>(task)] -= std::exp(sink - log) * delta;
      }
    });
    for (int64_t head = 0; head < problem.heads; ++head) {
      const auto begin = of_parts.begin() + head * parts;
      sums.dsinks[head] += static_cast<float>(std::accumulate(begin, begin + parts, 0.0));
    }
  }
}

}  // namespace alibi::kernels
