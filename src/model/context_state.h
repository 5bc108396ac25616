// What a context holds, and the walk that it is read by.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "alibi/context.h"
#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "attention/decode/eviction.h"
#include "core/access.h"
#include "model/pass.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] Context::State {
  const core::StateOf<LanguageModel>* model = nullptr;  // whose it is: to be compared, not followed
  TransformerConfig config;
  ContextOptions options;
  DType dtype = DType::float32;
  std::vector<KvCache> caches;
  std::unique_ptr<kernels::Eviction> eviction;  // null: all is kept
  model::Pass pass;  // the memory of the last one serves the next; its position is that of the context

  int64_t window_evicted_at = 0;  // where keys that the window hides were evicted last

  /// As if nothing had been read.
  void begin();
  /// Forgets all but the first tokens, in layers that hold more, or those that can still be gone back to.
  void cut(int64_t position);
  /// The earliest position to go back to, but for the beginning.
  int64_t earliest() const { return eviction ? eviction->evicted_at() : window_evicted_at; }
  /// Called before this number of tokens is read; evicts keys if necessary.
  void make_room(int64_t tokens);
};

}  // namespace alibi

namespace alibi::model {

/// Gives the final hidden states [batch, tokens, d_model] of each piece of ids [batch, length], and where in ids it
/// begins, to `use`; each row is read by its own context. A call that throws leaves the contexts as they were, whatever
/// threw.
using UseStates = std::function<void(int64_t first, const Tensor& states)>;

void read(const LanguageModel& model, const Tensor& ids, std::span<Context* const> contexts, const UseStates& use);

}  // namespace alibi::model
