#include "attention/skip/norms.h"

namespace alibi::kernels {
namespace {

double squares(const float* row, int64_t size) {
  constexpr int64_t lanes = 8;  // number of independent sums; size is a multiple of it
  double sums[lanes] = {};
  for (int64_t i = 0; i < size; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(row[i + lane]) * static_cast<double>(row[i + lane]);
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool skip_rule_applies(const Problem& problem) {
  if (problem.tolerance == 0) return false;
  if (problem.has_gates()) return true;
  return std::any_of(problem.sequences.begin(), problem.sequences.end(), [&](const Sequence& sequence) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      const Bias& bias = problem.biases->of(sequence.number, head);
      const auto falls = [&](Side side) { return bias.falls(side, problem.tolerance); };
      if (falls(Side::before) || (!problem.causal && falls(Side::after))) return true;
    }
    return false;
  });
}

KeyNorms::KeyNorms(const Problem& problem, int64_t block_rows)
    : blocks_(problem, BlockIndex::Of::keys, block_rows),
      before_(static_cast<size_t>(blocks_.size()) + blocks_.sequences() * static_cast<size_t>(blocks_.heads()), 0.0f),
      from_(before_) {}

void KeyNorms::set(size_t sequence, int64_t kv_head, int64_t block, float norm) {
  before_[at(sequence, kv_head, block + 1)] = norm;
  from_[at(sequence, kv_head, block)] = norm;
}

void KeyNorms::accumulate() {
  for (size_t s = 0; s < blocks_.sequences(); ++s) {
    const int64_t blocks = blocks_.blocks(s);
    for (int64_t head = 0; head < blocks_.heads(); ++head) {
      float* before = &before_[at(s, head, 0)];
      float* from = &from_[at(s, head, 0)];
      for (int64_t b = 1; b <= blocks; ++b) before[b] = std::max(before[b - 1], before[b]);
      for (int64_t b = blocks; b-- > 0;) from[b] = std::max(from[b + 1], from[b]);
    }
  }
}

float median_norm(const float* rows, int64_t count, int64_t size) {
  std::vector<double> all;
  for (int64_t i = 0; i < count; ++i) {
    const double sum = squares(rows + i * size, size);
    all.push_back(std::isfinite(sum) ? sum : HUGE_VAL);
  }
  const auto norm = static_cast<float>(std::sqrt(median(all)));
  return std::isfinite(norm) ? norm : 0;
}

void make_centre(const float* rows, int64_t count, int64_t size, float* centre) {
  std::fill_n(centre, size, 0.0f);
  std::vector<double> all, finite;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(squares(rows + i * size, size));
    if (std::isfinite(all.back())) finite.push_back(all.back());
  }
  if (finite.size() < 2) return;
  const double most = median(finite), number = static_cast<double>(finite.size());
  std::vector<double> mean(static_cast<size_t>(size), 0.0);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double sum = all[static_cast<size_t>(i)];
    if (!std::isfinite(sum)) continue;
    const double share = (sum > most ? std::sqrt(most / sum) : 1) / number;
    total += std::min(sum, most);
    for (int64_t d = 0; d < size; ++d) {
      mean[static_cast<size_t>(d)] += share * static_cast<double>(rows[i * size + d]);
    }
  }
  double length = 0;
  for (const double x : mean) length += x * x;
  // Expected squared norm of the mean of unrelated rows.
  const double chance = (total / number - length) / (number - 1);
  constexpr double clearly = 2;
  if (!(length > clearly * chance)) return;
  const double left = 1 - std::max(chance, 0.0) / length;
  for (int64_t d = 0; d < size; ++d) centre[d] = static_cast<float>(left * mean[static_cast<size_t>(d)]);
}

}  // namespace alibi::kernels
