// The gradients of one update.
#pragma once

#include <cstdint>

#include "alibi/train.h"
#include "train/batches.h"

namespace alibi::training {

/// Blocks in an update, and its place in the order of all blocks.
int64_t blocks_per_update(const TrainOptions& options);

struct UpdateLoss {
  double loss = 0;     ///< mean nll (nats) of what was predicted
  int64_t tokens = 0;  ///< seen
};

/// Leaves in the model the gradient of the mean loss over the blocks of update `step` (counted from 0).
UpdateLoss compute_gradients(LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options);

}  // namespace alibi::training
