// Blocks of queries and keys: their numbers, the blocks that a call may visit, and an estimate of their work. Each
// kernel chooses the number of rows per block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// Numbers the blocks of the queries of all heads, or of the keys of all key/value heads: sequence by sequence, and
/// head by head within a sequence.
class BlockIndex {
 public:
  enum class Of : uint8_t { queries, keys };
  BlockIndex(const Problem& problem, Of rows, int64_t block_rows);

  int64_t size() const { return size_; }
  size_t sequences() const { return blocks_.size(); }
  int64_t heads() const { return heads_; }
  /// Number of blocks of one head.
  int64_t blocks(size_t sequence) const { return blocks_[sequence]; }
  int64_t at(size_t sequence, int64_t head, int64_t block) const {
    return base_[sequence] + head * blocks_[sequence] + block;
  }

 private:
  int64_t heads_;
  std::vector<int64_t> base_, blocks_;
  int64_t size_ = 0;
};

/// The blocks of `block_rows` rows that contain at least one of these rows.
inline Range blocks_of(const Range& rows, int64_t block_rows) {
  const int64_t first = rows.begin / block_rows;
  return {first, rows.empty() ? first : (rows.end + block_rows - 1) / block_rows};
}

/// Estimates how many keys the queries [row, row + rows) of a sequence visit. It only determines the order of the
/// tasks.
int64_t likely_keys(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row, int64_t rows);

/// Sorts tasks (or pointers to them) by decreasing work. Tasks of equal work keep their order. `work` is the member
/// that holds the work.
template <class Task, class Work>
void most_work_first(std::vector<Task>& tasks, Work work) {
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const Task& a, const Task& b) { return std::invoke(work, a) > std::invoke(work, b); });
}

}  // namespace alibi::kernels
