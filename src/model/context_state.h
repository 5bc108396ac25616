// The state of a context, and the forward pass that reads tokens into it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  DType dtype = DType::float32, input_dtype = DType::float32;  // of keys and values, and of inputs of a convolution
  std::optional<int64_t> end;       // number of the model's positions; absent if they do not end
  std::vector<double> query_norms;  // [layers * heads]: bounds that eviction may use; empty if there are none
  std::vector<KvCache> caches;      // of all layers; with a short convolution also those of its inputs
  std::unique_ptr<kernels::Eviction> eviction;  // null if no keys are evicted
  model::Session session;
  model::PassMemory memory;  // reused from call to call

  int64_t window_evicted_at = 0;  // position at which keys outside the window were last evicted

  /// The session at this position, over the caches.
  model::Session session_at(int64_t position);
  /// Resets the context to its beginning.
  void begin();
  /// Truncates the layers to the first `position` tokens, as far as they hold more.
  void cut(int64_t position);
  /// The earliest position to rewind to, other than the beginning.
  int64_t earliest() const { return eviction ? eviction->evicted_at() : window_evicted_at; }
  /// Call this before this number of tokens is read. Evicts keys if necessary.
  void make_room(int64_t tokens);
  /// Evicts the inputs of the short convolution that no token after the earliest position needs.
  void evict_inputs(int64_t tokens);
};

}  // namespace alibi

namespace alibi::model {

/// Passes the final hidden states [batch, tokens, d_model] of each chunk of ids [batch, length], and the chunk's first
/// index in ids, to `use`. Each row is read by its own context. If a call throws, the contexts keep their previous
/// state.
using UseStates = std::function<void(int64_t first, const Tensor& states)>;

void read(const LanguageModel& model, const Tensor& ids, std::span<Context* const> contexts, const UseStates& use);

/// Tokens that continue the text of a context.
struct RaggedRow {
  Context* context;
  std::span<const int32_t> ids;
};

/// Reads any number of tokens into each of several contexts in one pass, so that the weights are read once, and returns
/// the final hidden states [tokens of all rows, d_model] in the order of the rows. With nn::IndependentRows the states
/// of a row have the same bits whichever other rows are read with it. A row may have at most max_tokens() of its
/// context. The caller keeps `memory`, and a core::KeepMemory, from call to call. If it throws, the contexts keep their
/// previous state.
Tensor read_ragged(const LanguageModel& model, std::span<const RaggedRow> rows, PassMemory& memory);
/// Maximum number of tokens that may be read into the context in one pass.
int64_t max_tokens(const Context& context);
/// float32 [R, V]: the logits of states [R, C].
Tensor logits(const LanguageModel& model, const Tensor& states);

}  // namespace alibi::model
