// The best rates of the machine: matrix products by oneDNN, and reads from memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "alibi/tensor.h"

namespace alibi::bench {

/// The best rate of oneDNN's matrix products. Every thread computes a square product of its own, of the fastest size.
class MatmulCeiling {
 public:
  enum class Layout : uint8_t {
    plain,   ///< row-major operands, as the library's layers have them
    packed,  ///< operands laid out beforehand as oneDNN likes them best
  };
  MatmulCeiling(DType dtype, Layout layout);
  ~MatmulCeiling();

  /// Runs one more product of the fastest size and returns its rate in FLOP/s. Call it between other measurements,
  /// because the speed of the machine may change.
  double run();
  /// The best rate seen.
  double best() const { return best_; }
  int64_t size() const;

 private:
  struct Products;
  std::unique_ptr<Products> fastest_;
  double best_ = 0;
};

/// Both layouts of one data type, or of float32 if oneDNN has no products of that type on this CPU. Operands of that
/// type are then widened, so float32 is the best rate they can reach.
struct MatmulCeilings {
  explicit MatmulCeilings(DType asked_for);

  /// "1,234 GFLOP/s", and the products that are left out with the reason.
  std::string describe() const;

  /// One more product of each; returns the better rate.
  double run() {
    const double plain_rate = plain.run(), packed_rate = packed.run();
    return std::max(plain_rate, packed_rate);
  }
  double best() const { return std::max(plain.best(), packed.best()); }

  DType asked_for;
  DType dtype;  ///< of what was measured
  MatmulCeiling plain, packed;
};

/// Reads a buffer that should be larger than the caches.
class MemoryReader {
 public:
  /// At most an eighth of the machine's memory is used.
  explicit MemoryReader(int64_t bytes);

  /// Reads all of it with all threads, which empties the processor's caches of other data.
  void read();
  /// Best rate seen, bytes per second.
  double best() const { return best_; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  Tensor buffer_;
  double best_ = 0;
};

}  // namespace alibi::bench
