// The best rates of the machine: matrix products, and reads from memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "alibi/tensor.h"

namespace alibi::bench {

/// The best rate of the matrix products of the build's library (nn/products.h). Every thread computes its own square
/// product of the fastest size.
class MatmulCeiling {
 public:
  enum class Layout : uint8_t {
    plain,   ///< row-major operands, as in the library's layers
    packed,  ///< operands in the layout that the library prefers, if it has one
  };
  MatmulCeiling(DType dtype, Layout layout);
  ~MatmulCeiling();

  /// Runs one more product of the fastest size and returns its rate in FLOP/s. Call it between other measurements,
  /// because the speed of the machine may change.
  double run();
  /// The best rate so far.
  double best() const { return best_; }
  int64_t size() const;

 private:
  struct Products;
  std::unique_ptr<Products> fastest_;
  double best_ = 0;
};

/// Both layouts for one data type. If the library has no products of that type on this CPU, operands are widened, so
/// the products are float32.
struct MatmulCeilings {
  explicit MatmulCeilings(DType asked_for);

  /// "1,234 GFLOP/s", with the products that were left out and the reason.
  std::string describe() const;

  /// Runs one more product of each layout and returns the better rate.
  double run() {
    const double plain_rate = plain.run(), packed_rate = packed.run();
    return std::max(plain_rate, packed_rate);
  }
  double best() const { return std::max(plain.best(), packed.best()); }

  DType asked_for;
  DType dtype;  ///< data type of the measured products
  MatmulCeiling plain, packed;
};

/// Reads a buffer that should be larger than the caches.
class MemoryReader {
 public:
  /// Uses at most an eighth of the machine's memory.
  explicit MemoryReader(int64_t bytes);

  /// Reads the whole buffer with all threads, which flushes other data from the processor's caches.
  void read();
  /// The best rate so far in bytes per second.
  double best() const { return best_; }
  int64_t bytes() const { return static_cast<int64_t>(buffer_.bytes()); }

 private:
  Tensor buffer_;
  double best_ = 0;
};

}  // namespace alibi::bench
