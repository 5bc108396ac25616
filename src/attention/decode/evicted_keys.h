// Evicted keys: what a cache still knows of them, and the weight that they could have had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "alibi/kv_cache.h"

namespace alibi::kernels {

/// The evicted keys of a head as stretches, each with a bound on the norms of its keys, nearest last. Older stretches
/// are longer, so a million keys need only a few dozen of them. The common bound of a long stretch loses little,
/// because its keys are far away.
class EvictedKeys {
 public:
  struct Stretch {
    int64_t begin, end;
    float norm;  ///< an upper bound of ||k||
  };

  /// Adds a stretch that follows all earlier ones.
  void add(const Stretch& stretch);
  bool empty() const { return stretches_.empty(); }
  int64_t keys() const { return empty() ? 0 : stretches_.back().end; }
  float longest() const { return longest_; }

  /// An upper bound of log(sum of exp(score)) over these keys, for a query at a later position. `score_per_norm` is the
  /// largest score of a key of norm 1. +infinity if there is no bound.
  double log_weight(double score_per_norm, float slope, int64_t position) const;

  int64_t bytes() const { return static_cast<int64_t>(stretches_.capacity() * sizeof(Stretch)); }

 private:
  std::vector<Stretch> stretches_;
  float longest_ = 0;
};

/// The weight that evicted keys could have had, over all rows of a call.
struct EvictedShares {
  double worst = 0;             ///< the largest share, as evicted_share() returns it
  int64_t head = 0, query = 0;  ///< the row that has it
  std::vector<double> lead;     ///< [heads]: largest score that a key at distance 0 could have had, less the row's
                                ///< log-sum-exp, over rows at positions from `count_from` on; -infinity without rows
};

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from);

/// For measurements: makes a cache that is at position `length` (a multiple of cache_block) of a text without having
/// read it. All keys before count as evicted, with the norm of the longest key of the cache.
void leave_gap(KvCache& cache, int64_t length);

}  // namespace alibi::kernels
