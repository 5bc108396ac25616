// A look at what the attention of a model is given, for measurements on trained models.
#pragma once

#include <functional>

#include "alibi/attention.h"

namespace alibi {

/// q, k and v of one layer, only valid during the call.
using AttentionObserver =
    std::function<void(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options)>;

/// While it lives, every inference call of a Transformer in this thread shows it each layer's attention, first layer
/// first.
class ScopedAttentionObserver {
 public:
  explicit ScopedAttentionObserver(AttentionObserver observer);
  ~ScopedAttentionObserver();
  ScopedAttentionObserver(const ScopedAttentionObserver&) = delete;
  ScopedAttentionObserver& operator=(const ScopedAttentionObserver&) = delete;

 private:
  AttentionObserver observer_;
  const AttentionObserver* outer_;
};

/// Calls this thread's observer, if there is one.
void observe_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

}  // namespace alibi
