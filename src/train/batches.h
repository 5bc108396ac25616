// The stream cut into blocks, and the order in which training meets them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/tensor.h"
#include "evaluate/masking.h"

namespace alibi::training {

/// Inputs and targets of one or more blocks of the same length.
struct Batch {
  Tensor ids;      // int32 [blocks, length]
  Tensor targets;  // int32 [blocks, length]
};

/// Contiguous blocks of `length` tokens, the last maybe shorter; targets of block k are tokens [kL, (k+1)L), inputs
/// the same shifted by one in the stream, so block k starts with the last token of block k - 1 and the first one with
/// `first_input`. Block boundaries never change; their order is shuffled anew from (seed, epoch).
class BlockOrder {
 public:
  BlockOrder(std::span<const int32_t> tokens, int64_t length, int32_t first_input, uint64_t seed);

  int64_t blocks_per_epoch() const { return blocks_; }
  /// Block of the n-th place since the start of training, through all epochs.
  int64_t block_at(int64_t n);
  int64_t length_of(int64_t block) const;
  /// The blocks in one batch; all must have the same length.
  Batch batch(std::span<const int64_t> blocks) const;
  /// The same for an encoder: inputs are the tokens themselves, some of them masked, and these are the targets. The
  /// first block's places in the masking begin at `first_place`, those of the next `length` later.
  Batch masked_batch(std::span<const int64_t> blocks, const evaluation::Masking& masking, int64_t first_place) const;

 private:
  Batch empty_batch(std::span<const int64_t> blocks) const;

  std::span<const int32_t> tokens_;
  int64_t length_;
  int64_t blocks_;
  int32_t first_input_;
  uint64_t seed_;
  int64_t shuffled_epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace alibi::training
