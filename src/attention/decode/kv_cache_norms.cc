#include "attention/decode/kv_cache_norms.h"

#include <algorithm>

#include "core/parallel.h"

namespace alibi::kernels {

void NormTree::resize(int64_t length) {
  for (auto& levels : heads_) {
    size_t level = 0;
    for (int64_t nodes = core::ceil_div(length, cache_block); nodes > 0; nodes = core::ceil_div(nodes, fanout)) {
      if (level == levels.size()) levels.emplace_back();
      Level& at = levels[level++];
      at.nodes.resize(static_cast<size_t>(std::max<int64_t>(0, nodes - at.first)), 0.0f);
      if (nodes == 1) break;
    }
    levels.resize(level);
  }
}

void NormTree::rebuild(int64_t head, int64_t block) {
  auto& levels = heads_[static_cast<size_t>(head)];
  int64_t node = block;
  for (size_t level = 1; level < levels.size(); ++level) {
    node /= fanout;
    const Level& below = levels[level - 1];
    for (int64_t i = std::max(node, levels[level].first); i < levels[level].end(); ++i) {
      float longest = 0;
      for (int64_t child = std::max(i * fanout, below.first); child < std::min((i + 1) * fanout, below.end());
           ++child) {
        longest = std::max(longest, below.at(child));
      }
      levels[level].at(i) = longest;
    }
  }
}

void NormTree::evict(int64_t head, int64_t block) {
  for (Level& level : heads_[static_cast<size_t>(head)]) {
    const int64_t first = std::min(block, level.end());
    if (first > level.first) {
      level.nodes.erase(level.nodes.begin(), level.nodes.begin() + (first - level.first));
      level.first = first;
    }
    block /= fanout;
  }
}

int64_t NormTree::bytes() const {
  size_t floats = 0;
  for (const auto& levels : heads_) {
    for (const Level& level : levels) floats += level.nodes.capacity();
  }
  return static_cast<int64_t>(floats * sizeof(float));
}

}  // namespace alibi::kernels
