// Keeps the context of an endless text in bounded memory: decides which keys are evicted, and bounds the effect of the
// eviction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "alibi/attention.h"
#include "alibi/eviction.h"
#include "alibi/kv_cache.h"
#include "alibi/tensor.h"
#include "attention/biases.h"

namespace alibi::kernels {

/// Shape of a model's caches, one for each layer, and their memory limits.
struct EvictionOptions {
  int64_t layers, heads, kv_heads, head_dim;
  int64_t window = 0;                    ///< if above 0, keys at this distance and beyond are not seen
  DType dtype = DType::float32;          ///< data type of keys and values
  std::optional<int64_t> memory = {};    ///< maximum bytes of keys and values
  std::optional<double> tolerance = {};  ///< keys with less than this share of a row's weight are evicted
  /// With gates, [layers * heads]: bounds of the norms of later queries. Empty: each head's largest norm so far, and a
  /// quarter more.
  std::vector<double> query_norms = {};
  bool exact = false;  ///< throw Error before the tolerance is exceeded (if no tolerance is set: the rounding error)
};

/// Evicts keys before the next tokens are read. With gates these are the keys that no later query of a bounded norm
/// needs (KvCache::evict_negligible). Otherwise they follow from an estimate of each head's horizon, which uses the
/// head's bias and its largest lead so far. The lead of a row is the score that a key at distance 0 could have had,
/// minus the log of the row's total weight. A far key must exceed what its bias takes from its score to matter. After
/// attention, the weight that the evicted keys could have had is bounded for each query and added to the certificate.
/// So a wrong estimate, or a query that is longer than the bound, costs memory or accuracy, but the certificate is
/// always true.
class Eviction {
 public:
  /// Throws UsageError if a limit is out of range or the memory is too small.
  explicit Eviction(const EvictionOptions& options);

  /// Maximum number of tokens that may be read together.
  int64_t max_tokens() const { return max_tokens_; }
  /// Call this before `tokens` more tokens are read. If a cache has no room for them, its heads evict the keys beyond
  /// their horizon.
  void make_room(std::span<KvCache> caches, int64_t tokens);
  /// Call this after a layer's attention. With `exact`, throws Error if the tolerance is exceeded.
  void attended(int layer, const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse);

  /// Position of the last eviction.
  int64_t evicted_at() const { return evicted_at_; }
  const EvictionCertificate& certificate() const { return certificate_; }

 private:
  /// The number of keys before `position` that a head needs if the keys before them may have the share exp(log_share)
  /// of each row's weight.
  double horizon_of(int64_t layer, int64_t kv_head, double log_share, int64_t position) const;
  /// shares_of_oldest_keys() of a layer with gates.
  std::vector<std::vector<double>> shares_of(int64_t layer, const KvCache& cache) const;
  /// The first keys that all heads need, layer by layer, for the smallest share that fits the memory.
  std::vector<int64_t> plan(std::span<const KvCache> caches, double max_keys) const;

  int64_t layers_, heads_, kv_heads_, window_;
  EvictionOptions options_;
  double tolerance_;                                   // used with `exact`
  std::vector<std::shared_ptr<const Biases>> biases_;  // [layers], from the last call of attended()
  std::vector<AttentionOptions> attention_;            // [layers], of that call
  std::vector<double> leads_, norms_;                  // [layers * heads]
  int64_t key_bytes_;                                  // bytes of a key and its value
  double max_keys_;                                    // over all heads of all layers
  int64_t max_tokens_;
  int64_t evicted_at_ = 0;
  EvictionCertificate certificate_;
};

}  // namespace alibi::kernels
