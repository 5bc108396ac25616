// Which attention weights dropout removes: a pure function of (seed, batch, head, query row, key row), so that the
// backward pass, any block order and any instruction set see the same mask.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace alibi::kernels {

/// The mask of one head of one batch entry.
class DropoutMask {
 public:
  DropoutMask(uint64_t seed, int64_t batch, int64_t head)
      : head_(mix(seed, static_cast<uint64_t>(batch), static_cast<uint64_t>(head))) {}

  /// The query's and the key's share of the hash; rows count from the start of the tensor.
  uint32_t query_key(int64_t row) const {
    return static_cast<uint32_t>(mix(head_, 2 * static_cast<uint64_t>(row)) >> 32);
  }
  uint32_t key_key(int64_t row) const { return static_cast<uint32_t>(mix(head_, 2 * static_cast<uint64_t>(row) + 1)); }

  /// 32 random bits for a pair: lowbias32 (C. Wellons, hash-prospector) of the sum. The vector kernels do the same.
  static uint32_t bits(uint32_t query_key, uint32_t key_key) {
    uint32_t x = query_key + key_key;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }

  /// A weight is kept where bits >= threshold.
  static uint32_t threshold(float probability) {
    return static_cast<uint32_t>(static_cast<double>(probability) * 0x1p32);
  }

 private:
  uint64_t head_;
};

}  // namespace alibi::kernels
