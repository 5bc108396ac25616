#include "model/attention_observer.h"

#include <utility>

namespace alibi {
namespace {

thread_local const AttentionObserver* current = nullptr;

}  // namespace

ScopedAttentionObserver::ScopedAttentionObserver(AttentionObserver observer)
    : observer_(std::move(observer)), outer_(std::exchange(current, &observer_)) {}

ScopedAttentionObserver::~ScopedAttentionObserver() { current = outer_; }

void observe_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  if (current != nullptr) (*current)(q, k, v, options);
}

}  // namespace alibi
