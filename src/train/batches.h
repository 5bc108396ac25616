// Blocks of the token stream, the order in which training visits them, and the gradients of one update.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "alibi/sequence_parallel.h"
#include "alibi/tensor.h"
#include "alibi/train.h"
#include "evaluate/masking.h"

namespace alibi::training {

/// Inputs and targets of one or more blocks of the same length.
struct Batch {
  Tensor ids;      // int32 [blocks, length]
  Tensor targets;  // int32 [blocks, length]
};

/// Contiguous blocks of `length` tokens; the last one may be shorter. The targets of block k are the tokens [kL,
/// (k+1)L). Its inputs are the same tokens shifted by one: block k starts with the last token of block k - 1, and the
/// first block starts with `first_input`. Block boundaries never change. Each epoch visits the blocks in a different
/// order, which is a function of (seed, epoch). `scored` says for each token whether it is predicted; empty: all are.
class BlockOrder {
 public:
  BlockOrder(std::span<const int32_t> tokens, int64_t length, int32_t first_input, uint64_t seed,
             std::span<const uint8_t> scored = {});

  int64_t blocks_per_epoch() const { return blocks_; }
  /// The block with index n in training order, counted over all epochs.
  int64_t block_at(int64_t n);
  int64_t length_of(int64_t block) const;
  /// Number of tokens of the block that are predicted.
  int64_t targets_of(int64_t block) const;
  /// The blocks as one batch. All must have the same length.
  Batch batch(std::span<const int64_t> blocks) const;
  /// A batch for an encoder: the inputs are the tokens with some of them masked, and the targets are the masked tokens.
  /// `first_place` is the place of the first block in the masking; each further block is `length` places later.
  Batch masked_batch(std::span<const int64_t> blocks, const evaluation::Masking& masking, int64_t first_place) const;

 private:
  Batch empty_batch(std::span<const int64_t> blocks) const;

  std::span<const int32_t> tokens_;
  std::span<const uint8_t> scored_;
  int64_t length_;
  int64_t blocks_;
  int32_t first_input_;
  uint64_t seed_;
  int64_t shuffled_epoch_ = -1;
  std::vector<int64_t> order_;
};

/// Number of blocks in an update.
int64_t blocks_per_update(const TrainOptions& options);

/// Blocks of an update that the model processes at once.
struct MicroBatch {
  size_t begin, end;  ///< indices of the blocks in the update
  uint64_t part;      ///< index of the micro-batch, for random numbers
};

/// The blocks of update `step`, counted from 0. They are divided into shards, and these into micro-batches.
class Update {
 public:
  Update(const LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options);

  int64_t tokens() const { return tokens_; }    ///< number of tokens that the model reads
  int64_t targets() const { return targets_; }  ///< number of tokens that it predicts, at least 1
  std::span<const MicroBatch> of_shard(int shard) const;
  /// Number of tokens of each block of the micro-batch.
  int64_t length_of(const MicroBatch& batch) const { return order_.length_of(blocks_[batch.begin]); }
  /// Adds the gradients of the mean loss of the update. Returns the sum of the losses of the micro-batch. With ranks
  /// that divide the blocks (model::divide_sequences), only of this rank's tokens.
  double accumulate(LanguageModel& model, const MicroBatch& batch, const SequenceRanks* ranks = nullptr) const;

 private:
  const BlockOrder& order_;
  const TrainOptions& options_;
  int64_t step_;
  std::optional<evaluation::Masking> masking_;  // of an encoder
  std::vector<int64_t> blocks_;
  std::vector<MicroBatch> batches_;
  std::vector<size_t> ends_;  // for each shard, the index after its last micro-batch
  int64_t tokens_ = 0, targets_ = 0;
};

struct UpdateLoss {
  double loss = 0;     ///< mean nll of the predicted tokens in nats
  int64_t tokens = 0;  ///< number of tokens that the model has read
};

/// Sets the model's gradients to those of the mean loss over the blocks of update `step`, counted from 0, added up in
/// one shard.
UpdateLoss compute_gradients(LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options);

}  // namespace alibi::training
