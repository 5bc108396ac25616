// Evicted keys: the bounds that a cache keeps for them, and the weight that they could have had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/skip/rule.h"
#include "attention/skip/weights.h"

namespace alibi::kernels {

/// The evicted keys of a head without gates as stretches, each with a bound of the norms of its keys, nearest last.
/// Older stretches are longer, so a million keys need only a few dozen stretches. The common bound of a long stretch is
/// only slightly less precise, because its keys are far away.
class EvictedKeys {
 public:
  struct Stretch {
    int64_t begin, end;
    float norm;  ///< an upper bound of ||k||
  };

  /// Adds a stretch that follows all earlier ones.
  void add(const Stretch& stretch);
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

/// The evicted keys of a query head with gates. The gates between two keys do not change with the query, so the sum of
/// the skip rule over all evicted keys (skip/weights.h) is kept, counted from the last of them.
class EvictedWeights {
 public:
  /// Adds a block of keys that follows all earlier ones. `norm` and `radius` are upper bounds of ||k|| and of
  /// ||k - centre||. The gates of the key before it are still there.
  void add(const HeadDecay& decay, const Range& keys, float norm, float radius);
  bool empty() const { return keys_ == 0; }

  /// log2 of an upper bound of the weight of these keys over 2^row.top, for a query at a later position. row.norm is in
  /// units of a score per norm of a key, and row.product is the score of the centre.
  double log2_weight(SkipRow<double> row, const HeadBias& bias, int64_t position, const Roundings& roundings) const;

 private:
  WeightSum sum_;
  WeightBounds::Values x_ = {};
  float norm_ = 0, radius_ = 0;
  int64_t keys_ = 0;
};

/// For each key/value head of a cache with gates, what evicting its oldest keys can cost. Entry n is an upper bound of
/// log(weight of the evicted keys / weight of the others) if n more blocks of cache_block keys are evicted, for each
/// later query whose norm is at most query_norms[its head], whatever keys and gates follow. The entries rise.
std::vector<std::vector<double>> shares_of_oldest_keys(const KvCache& cache, const AttentionOptions& options,
                                                       std::span<const double> query_norms);

/// The weight that evicted keys could have had, over all rows of a call.
struct EvictedShares {
  double worst = 0;             ///< the largest share, which evicted_share() returns
  int64_t head = 0, query = 0;  ///< the row with this share
  std::vector<double> lead;  ///< [heads]: maximum of (largest score that a key at distance 0 could have had - the row's
                             ///< log-sum-exp) over rows at positions from `count_from` on; -infinity without rows
  std::vector<double> norm;  ///< [heads]: largest norm of a query
  std::shared_ptr<const Biases> biases;
};

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from);

/// For benchmarks: moves a cache to position `length` (a multiple of cache_block) of a text that it has not read. All
/// earlier keys count as evicted, with the norm of the longest key in the cache.
void leave_gap(KvCache& cache, int64_t length);

}  // namespace alibi::kernels
