#include "attention/skip.h"

namespace alibi::kernels {

bool skip_rule_applies(const Problem& problem) {
  const auto some = [](const std::vector<float>& slopes) {
    return std::any_of(slopes.begin(), slopes.end(), [](float slope) { return slope > 0; });
  };
  return problem.tolerance > 0 && problem.distance_table.empty() &&
         (some(problem.slopes_before) || some(problem.slopes_after));
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

}  // namespace alibi::kernels
