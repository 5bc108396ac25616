// What the machine can do at best, measured where it is compared with: matrix products by oneDNN, reads from memory.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::bench {

/// The best rate of square matrix products with float32 or bfloat16 operands.
class MatmulCeiling {
 public:
  /// Tries several sizes and both output types, and keeps the fastest.
  explicit MatmulCeiling(DType dtype);

  /// One more product of the fastest kind; returns its rate in FLOP/s. To be called now and then while other things are
  /// measured: the machine may have been slow at first.
  double run();
  /// The best rate seen.
  double best() const { return best_; }
  int64_t size() const { return a_.size(0); }

 private:
  Tensor a_, b_, c_;
  double best_ = 0;
};

/// Reads a buffer larger than common caches.
class MemoryReader {
 public:
  /// 512 MiB, or an eighth of the machine's memory where that is less.
  MemoryReader();

  /// Reads all of it with all threads: what the caches held before is gone.
  void read();
  /// Best rate seen, bytes per second.
  double best() const { return best_; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  Tensor buffer_;
  double best_ = 0;
};

}  // namespace alibi::bench
