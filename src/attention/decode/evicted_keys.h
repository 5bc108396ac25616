// Evicted keys: the bounds that a cache keeps for them, and the weight that they could have had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/skip/rule.h"

namespace alibi::kernels {

/// The evicted keys of a head as stretches, each with a bound of the norms of its keys, nearest last. Older stretches
/// are longer, so a million keys need only a few dozen stretches. The common bound of a long stretch is only slightly
/// less precise, because its keys are far away.
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

  /// Returns an upper bound of log(sum of exp(score)) over these keys for a query at a later position, less the
  /// log-sum-exp of the keys that it has; or +infinity if there is none. `score_per_norm` is the largest score of a key
  /// of norm 1.
  double log_weight(double score_per_norm, double log_sum, const Bias& bias, int64_t position,
                    const Roundings& roundings) const;

  int64_t bytes() const { return static_cast<int64_t>(stretches_.capacity() * sizeof(Stretch)); }

 private:
  std::vector<Stretch> stretches_;
  float longest_ = 0;
};

/// The weight that evicted keys could have had, over all rows of a call.
struct EvictedShares {
  double worst = 0;             ///< the largest share, which evicted_share() returns
  int64_t head = 0, query = 0;  ///< the row with this share
  std::vector<double> lead;  ///< [heads]: maximum of (largest score that a key at distance 0 could have had - the row's
                             ///< log-sum-exp) over rows at positions from `count_from` on; -infinity without rows
  std::shared_ptr<const Biases> biases;
};

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from);

/// For benchmarks: moves a cache to position `length` (a multiple of cache_block) of a text that it has not read. All
/// earlier keys count as evicted, with the norm of the longest key in the cache.
void leave_gap(KvCache& cache, int64_t length);

}  // namespace alibi::kernels
