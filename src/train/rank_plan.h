// The cost of a training over ranks, predicted from that of one process.
#pragma once

#include <cstdint>

#include "alibi/train.h"

namespace alibi::training {

/// Of each rank, in an update of N parameters over P ranks.
struct RankPlan {
  int64_t gradients = 0;        ///< bytes of the gradients of its shards that are kept at once
  int64_t optimizer = 0;        ///< bytes of the optimizer's state of its part
  int64_t messages = 0;         ///< bytes of messages that are kept at once
  int64_t sent = 0;             ///< bytes that it sends: 8 N (P - 1) / P, if its shards are one node of the tree
  double compute = 0;           ///< seconds, of the rank with most shards
  double gradients_alone = 0;   ///< seconds of the exchange of gradients that the backward pass does not hide
  double weights_exchange = 0;  ///< seconds of the exchange of weights
  double seconds() const { return compute + gradients_alone + weights_exchange; }
};

struct Link {
  double bytes_per_second;
  double delay = 0;  ///< seconds that a message takes in addition
};

/// `seconds_alone`: of an update in one process on a host like those of the ranks.
RankPlan plan_ranks(const LanguageModelConfig& config, const TrainOptions& options, int ranks, const Link& link,
                    double seconds_alone);

}  // namespace alibi::training
