#include "attention/decode/kv_cache_norms.h"

#include <algorithm>

#include "core/parallel.h"

namespace alibi::kernels {

void NormTree::resize(int64_t length) {
  for (auto& levels : heads_) {
    size_t level = 0;
    for (int64_t nodes = ceil_div(length, cache_block); nodes > 0; nodes = ceil_div(nodes, fanout)) {
      if (level == levels.size()) levels.emplace_back();
      levels[level++].resize(static_cast<size_t>(nodes), 0.0f);
      if (nodes == 1) break;
    }
    levels.resize(level);
  }
}

void NormTree::rebuild(int64_t head, int64_t block) {
  auto& levels = heads_[static_cast<size_t>(head)];
  size_t node = static_cast<size_t>(block);
  for (size_t level = 1; level < levels.size(); ++level) {
    node /= fanout;
    const auto& below = levels[level - 1];
    for (size_t i = node; i < levels[level].size(); ++i) {
      const auto first = below.begin() + static_cast<int64_t>(i) * fanout;
      levels[level][i] = *std::max_element(first, std::min(first + fanout, below.end()));
    }
  }
}

int64_t NormTree::bytes() const {
  size_t floats = 0;
  for (const auto& levels : heads_) {
    for (const auto& level : levels) floats += level.capacity();
  }
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace alibi::kernels
