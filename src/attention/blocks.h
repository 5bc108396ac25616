// How attention is cut: blocks of queries and keys, tasks for the threads, and each thread's workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// Rows of a query block: three vectors of 16 lanes, six of 8 or twelve of 4. The same on every instruction set, so
/// that the key blocks a block visits are too.
inline constexpr int64_t query_rows = 48;
/// Rows of a key block.
inline constexpr int64_t key_rows = 64;

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Up to query_rows queries of one head, and what they may see.
struct QueryBlock {
  int64_t head = 0;
  int64_t row = 0, rows = 0;  ///< within the sequence
  int64_t position = 0;       ///< of the first row
  HeadBias bias;
  int64_t keys = 0;                    ///< of the sequence
  bool outside = false;                ///< linear biases of some row count distances from its nearest key
  int64_t key_begin = 0, key_end = 0;  ///< keys that causality, window and closed directions leave to any row
  int64_t first = 0, last = 0;         ///< their key blocks

  /// Distance of row x's nearest key, which its linear bias counts from (Problem::nearest).
  int64_t nearest(int64_t x) const { return outside ? Problem::nearest(position + x, keys) : 0; }
};

QueryBlock query_block_at(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row);

/// Numbers the query blocks of a problem: head by head of each batch entry, sequence by sequence.
class BlockIndex {
 public:
  explicit BlockIndex(const Problem& problem);
  int64_t size() const { return size_; }
  int64_t at(size_t sequence, int64_t head, int64_t row) const {
    return base_[sequence] + head * blocks_[sequence] + row / query_rows;
  }

 private:
  std::vector<int64_t> base_, blocks_;
  int64_t size_ = 0;
};

/// Query blocks that one thread works through together, sharing each key block it loads: rows [row_begin, row_end) of
/// heads that read the same key/value head.
struct QueryTask {
  size_t sequence = 0;
  int64_t head_begin = 0, head_end = 0;
  int64_t row_begin = 0, row_end = 0;
};

/// Every query in one task, the most work first.
std::vector<QueryTask> query_tasks(const Problem& problem);

/// How many keys a query block is likely to visit: for the order of tasks only.
int64_t likely_keys(const Problem& problem, const QueryBlock& block);

/// The calling thread's workspace, kept from call to call (it is some hundreds of KiB).
class Workspace {
 public:
  /// Room for `floats`, undefined; what was taken before is void.
  static Workspace take(size_t floats);
  /// The next part of it, aligned to 64 bytes.
  float* part(int64_t floats);

 private:
  std::shared_ptr<void> owner_;
  float* next_ = nullptr;
  size_t left_ = 0;
};

/// While it lives, this thread treats denormal numbers as zero: weights that underflow would otherwise cost a hundred
/// cycles each.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_ = 0;
};

}  // namespace alibi::kernels
