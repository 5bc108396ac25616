// What the machine can do at best, measured where it is compared with: matrix products by oneDNN, reads from memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "alibi/tensor.h"

namespace alibi::bench {

/// The best rate of oneDNN's matrix products: on every thread a square product of its own, the size that runs fastest.
class MatmulCeiling {
 public:
  enum class Layout : uint8_t {
    plain,   ///< row-major operands, as the library's layers have them
    packed,  ///< operands laid out beforehand as oneDNN likes them best
  };
  MatmulCeiling(DType dtype, Layout layout);
  ~MatmulCeiling();

  /// One more product of the fastest size; returns its rate in FLOP/s. To be called now and then while other things are
  /// measured: the machine may have been slow at first.
  double run();
  /// The best rate seen.
  double best() const { return best_; }
  int64_t size() const;

 private:
  struct Products;
  std::unique_ptr<Products> fastest_;
  double best_ = 0;
};

/// Both layouts of one data type, or of float32 where oneDNN has no products of that type on this CPU: what is computed
/// with operands of that type is then widened, and can come near the rate of float32 at best.
struct MatmulCeilings {
  explicit MatmulCeilings(DType asked_for);

  /// "1,234 GFLOP/s", and which products are left out and why, if any.
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
