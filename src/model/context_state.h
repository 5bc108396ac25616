// What a context holds, and the walk that it is read by.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "alibi/context.h"
#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "model/pass.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] Context::State {
  const LanguageModel::State* model = nullptr;  // whose it is: to be compared, not followed
  DType dtype = DType::float32;
  std::vector<KvCache> caches;
  Pass pass;  // the memory of the last one serves the next; its position is that of the context

  /// Forgets all but the first tokens, in layers that hold more.
  void cut(int64_t position);
};

/// Gives the final hidden states [1, tokens, d_model] of each piece of ids [1, length], and where in ids it begins, to
/// `use`. A call that throws leaves the context as it was, whatever threw.
using UseStates = std::function<void(int64_t first, const Tensor& states)>;
void read(const LanguageModel& model, const Tensor& ids, Context& context, const UseStates& use);

}  // namespace alibi
