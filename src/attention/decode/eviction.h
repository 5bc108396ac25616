// How the context of a text that need not end stays in bounded memory: which keys are evicted, and what that can have
// changed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "alibi/attention.h"
#include "alibi/eviction.h"
#include "alibi/kv_cache.h"
#include "alibi/tensor.h"

namespace alibi::kernels {

/// The caches of a model, one for each layer, and what limits them.
struct EvictionOptions {
  int64_t layers, heads, kv_heads, head_dim;
  int64_t window = 0;                    ///< > 0: keys at this distance and beyond are not seen
  DType dtype = DType::float32;          ///< of keys and values
  std::optional<int64_t> memory = {};    ///< most bytes of keys and values
  std::optional<double> tolerance = {};  ///< keys are evicted where they would weigh less than this share of a row
  bool exact = false;                    ///< throw Error rather than pass the tolerance, or, without one, rounding
};

/// Keys are evicted ahead of what is read, by an estimate of how far each head looks back: the largest lead that a key
/// next to a query would have had over the row's whole weight, so far, and the head's slope, which a far key has to
/// make up for. What the evicted keys could really have weighed is bounded afterwards, at each query, and adds to the
/// certificate. So the estimate costs memory or accuracy where it is wrong, but never the truth of what is reported.
class Eviction {
 public:
  /// Throws UsageError if a limit makes no sense, or the memory is too little.
  explicit Eviction(const EvictionOptions& options);

  /// Most tokens that may be read together.
  int64_t most_tokens() const { return most_tokens_; }
  /// Before each layer reads `tokens` more: where a cache lacks room for them, heads evict what lies past their
  /// reach.
  void make_room(std::span<KvCache> caches, int64_t tokens);
  /// After a layer's attention. Throws Error if the tolerance is passed where it must not be.
  void attended(int layer, const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse);

  /// The position at which keys were evicted last.
  int64_t evicted_at() const { return evicted_at_; }
  const EvictionCertificate& certificate() const { return certificate_; }

 private:
  /// The first key that a head needs at `position` if what lies before may weigh at most exp(log_share) in each row.
  int64_t needed_from(int64_t layer, int64_t kv_head, double log_share, int64_t position) const;
  /// The same of all heads, layer by layer, for the least share that there is memory for.
  std::vector<int64_t> plan(std::span<const KvCache> caches, double most_keys) const;

  int64_t layers_, heads_, kv_heads_, window_;
  EvictionOptions options_;
  double tolerance_;           // for `exact`
  std::vector<float> slopes_;  // [layers * heads], as attention had them last
  std::vector<double> leads_;  // [layers * heads]
  int64_t key_bytes_;          // of a key and its value
  double most_keys_;           // of all heads of all layers
  int64_t most_tokens_;
  int64_t evicted_at_ = 0;
  EvictionCertificate certificate_;
};

}  // namespace alibi::kernels
