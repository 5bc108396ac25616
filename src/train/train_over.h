// Training over the ranks of a group.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/train.h"
#include "ranks/group.h"

namespace alibi::training {

/// train(). All ranks of the group call it with the same model, tokens and options. Rank 0 alone evaluates, calls
/// on_step and on_warning, and writes; the others read the checkpoint from the same folder. A rank that should stop
/// stops all. The weights have the same bits at any number of ranks up to the number of shards. If early stopping
/// chooses earlier weights, only rank 0 has them. `group` may be null. `scored` says for each token whether it is
/// predicted; empty: all are.
TrainResult train_over(ranks::Group* group, LanguageModel& model, std::span<const int32_t> tokens,
                       const TrainOptions& options, const TrainRun& run, std::span<const uint8_t> scored = {});

}  // namespace alibi::training
