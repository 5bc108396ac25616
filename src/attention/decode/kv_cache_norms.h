// Norms of the keys of a cache: a tree of maxima for each head. It gives the norm of the longest key of a range without
// reading the keys or all blocks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace alibi::kernels {

/// Number of keys in a leaf of the tree, and in a block of decoding.
inline constexpr int64_t cache_block = 64;

/// ||row|| in float64.
template <class T>
double norm_of(const T* row, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const auto x = static_cast<double>(static_cast<float>(row[i]));
    sum += x * x;
  }
  return std::sqrt(sum);
}

/// Level 0 stores the largest ||k|| (or distance from a centre) of each block of keys. Level l + 1 stores the maximum
/// of `fanout` nodes of level l. Every value is an upper bound of the exact norms, and +infinity if a key is not
/// finite.
class NormTree {
 public:
  static constexpr int64_t fanout = 16;

  explicit NormTree(int64_t heads) : heads_(static_cast<size_t>(heads)) {}

  /// Number of keys that a node covers.
  static int64_t span(int level) { return cache_block << (4 * level); }

  int levels() const { return static_cast<int>(heads_.front().size()); }
  float at(int64_t head, int level, int64_t node) const {
    return heads_[static_cast<size_t>(head)][static_cast<size_t>(level)].at(node);
  }

  /// The maximum over all keys of a head.
  float longest(int64_t head) const {
    const std::vector<Level>& levels = heads_[static_cast<size_t>(head)];
    return levels.empty() || levels.back().nodes.empty() ? 0 : levels.back().nodes.front();
  }

  /// Makes room for `length` keys in every head. New nodes are 0.
  void resize(int64_t length);
  /// The leaf of a block. Different blocks may be written at the same time.
  float& leaf(int64_t head, int64_t block) { return heads_[static_cast<size_t>(head)][0].at(block); }
  /// Updates the upper levels after leaves from `block` on have changed.
  void rebuild(int64_t head, int64_t block);
  /// Drops the leaves of the blocks before `block`. Nodes that also cover earlier blocks remain upper bounds.
  void evict(int64_t head, int64_t block);

  int64_t bytes() const;

 private:
  struct Level {
    int64_t first = 0;  // earlier ones were dropped
    std::vector<float> nodes;

    float& at(int64_t node) { return nodes[static_cast<size_t>(node - first)]; }
    float at(int64_t node) const { return nodes[static_cast<size_t>(node - first)]; }
    int64_t end() const { return first + static_cast<int64_t>(nodes.size()); }
  };
  std::vector<std::vector<Level>> heads_;  // [head][level]
};

}  // namespace alibi::kernels
