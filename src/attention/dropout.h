// The attention weights that dropout removes: a pure function of (seed, batch, head, query row, key row), so that the
// backward pass and every block order and instruction set use the same mask.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace alibi::kernels {

/// The mask of one head of one batch entry. One hash of 32 bits serves a query and a pair of keys, rows 2 p and 2 p + 1
/// of their sequence: the low half belongs to the first key, the high half to the second.
class DropoutMask {
 public:
  DropoutMask(uint64_t seed, int64_t batch, int64_t head)
      : head_(core::mix(seed, static_cast<uint64_t>(batch), static_cast<uint64_t>(head))) {}

  /// The draw of a query row, and the draw of the pair whose first key is the given row. Their sum is hashed. Rows are
  /// counted from the start of the tensor.
  uint32_t query_draw(int64_t row) const {
    return static_cast<uint32_t>(core::mix(head_, 2 * static_cast<uint64_t>(row)) >> 32);
  }
  uint32_t pair_draw(int64_t row) const {
    return static_cast<uint32_t>(core::mix(head_, 2 * static_cast<uint64_t>(row) + 1));
  }

  /// lowbias32 (C. Wellons, hash-prospector) of the sum. The kernels compute the same in vectors.
  static uint32_t bits(uint32_t query_draw, uint32_t pair_draw) {
    uint32_t x = query_draw + pair_draw;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  static uint32_t half(uint32_t bits, bool second) { return second ? bits >> 16 : bits & 0xffffu; }

  /// A weight is kept if its half is >= threshold. Probabilities are multiples of 2^-16 and less than one.
  static uint32_t threshold(float probability) {
    return static_cast<uint32_t>(std::min(std::lround(static_cast<double>(probability) * 0x1p16), 0xffffl));
  }
  /// The factor of the weights that are kept: the inverse of their share.
  static float scale(float probability) {
    return static_cast<float>(0x1p16 / (0x1p16 - static_cast<double>(threshold(probability))));
  }

  /// Whether the key row `key`, in a sequence that begins at key_begin, is kept.
  bool keeps(int64_t query_row, int64_t key_begin, int64_t key, uint32_t threshold) const {
    const uint32_t pair = bits(query_draw(query_row), pair_draw(key_begin + key - key % 2));
    return half(pair, key % 2 != 0) >= threshold;
  }

 private:
  uint64_t head_;
};

}  // namespace alibi::kernels
