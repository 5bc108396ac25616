// How the context of a text that need not end stays in bounded memory: which keys are released, and what that can have
// changed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/attention.h"
#include "alibi/context.h"
#include "alibi/kv_cache.h"
#include "alibi/transformer.h"

namespace alibi {

/// Keys are released ahead of what is read, by an estimate of how far each head looks back: the largest lead that a key
/// next to a query would have had over the row's whole weight, so far, and the head's slope, which a far key has to
/// make up for. What the released keys could really have weighed is bounded afterwards, at each query, and adds to the
/// certificate. So the estimate costs memory or accuracy where it is wrong, but never the truth of what is reported.
class Forgetting {
 public:
  /// Throws UsageError if the positions have no slopes, or the memory is too little.
  Forgetting(const TransformerConfig& config, const ContextOptions& options, DType dtype);

  /// Most tokens that may be read together.
  int64_t most_tokens() const { return most_tokens_; }
  /// Before each layer reads `tokens` more: where a cache lacks room for them, heads release what lies past their
  /// reach.
  void make_room(std::span<KvCache> caches, int64_t tokens);
  /// After a layer's attention. Throws Error if the tolerance is passed where it must not be.
  void attended(int layer, const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse);

  /// The position at which keys were released last.
  int64_t released_at() const { return released_at_; }
  const ReleaseCertificate& certificate() const { return certificate_; }

 private:
  /// The first key that a head needs at `position` if what lies before may weigh at most exp(log_share) in each row.
  int64_t needed_from(int64_t layer, int64_t kv_head, double log_share, int64_t position) const;
  /// The same of all heads, layer by layer, for the least share that there is memory for.
  std::vector<int64_t> plan(std::span<const KvCache> caches, double most_keys) const;

  int64_t layers_, heads_, kv_heads_, window_;
  ContextOptions options_;
  double tolerance_;           // for `exact`
  std::vector<float> slopes_;  // [layers * heads], as attention had them last
  std::vector<double> leads_;  // [layers * heads]
  int64_t key_bytes_;          // of a key and its value
  double most_keys_;           // of all heads of all layers
  int64_t most_tokens_;
  int64_t released_at_ = 0;
  ReleaseCertificate certificate_;
};

}  // namespace alibi
