// What evicted keys could have weighed, by row, and what that says of how far heads look back.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/kv_cache.h"

namespace alibi::kernels {

struct EvictedShares {
  double worst = 0;             ///< evicted_share()
  int64_t head = 0, query = 0;  ///< where that is
  std::vector<double> lead;     ///< [heads] the largest score that a key could have had at the row itself, less the
                                ///< row's log-sum-exp; of rows from `count_from` on, else -infinity
};

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from);

}  // namespace alibi::kernels
