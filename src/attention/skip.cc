#include "attention/skip.h"

#include <algorithm>

#include "core/parallel.h"

namespace alibi::kernels {

bool may_skip(const Problem& problem) {
  const auto some = [](const std::vector<float>& slopes) {
    return std::any_of(slopes.begin(), slopes.end(), [](float slope) { return slope > 0; });
  };
  return problem.tolerance > 0 && problem.distance_table.empty() &&
         (some(problem.slopes_before) || some(problem.slopes_after));
}

KeyNorms::KeyNorms(const Problem& problem) {
  if (!may_skip(problem)) return;
  int64_t size = 0;
  for (const Sequence& sequence : problem.sequences) {
    base_.push_back(size);
    blocks_.push_back(ceil_div(sequence.keys, key_rows));
    size += problem.kv_heads * (blocks_.back() + 1);
  }
  within_.assign(static_cast<size_t>(size), 0.0f);
  before_ = from_ = within_;
}

void KeyNorms::accumulate(const Problem& problem) {
  for (size_t s = 0; s < blocks_.size(); ++s) {
    for (int64_t head = 0; head < problem.kv_heads; ++head) {
      for (int64_t b = 0; b < blocks_[s]; ++b) {
        before_[at(s, head, b + 1)] = std::max(before_[at(s, head, b)], within_[at(s, head, b)]);
      }
      for (int64_t b = blocks_[s]; b-- > 0;) {
        from_[at(s, head, b)] = std::max(from_[at(s, head, b + 1)], within_[at(s, head, b)]);
      }
    }
  }
}

}  // namespace alibi::kernels
