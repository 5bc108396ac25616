#include "alibi/layer_states.h"

#include <algorithm>

#include "core/check.h"
#include "model/context_state.h"
#include "model/pass.h"

namespace alibi {

LayerStates layer_states(const LanguageModel& model, const Tensor& ids, std::span<const int64_t> rows) {
  check(ids.axes() == 2 && ids.size(0) == 1, "[layer_states] ids have shape {}, expected [1, length]",
        to_string(ids.shape()));
  const int64_t length = ids.size(1), width = model.config().transformer.d_model;
  for (const int64_t row : rows) {
    check_usage(row >= 0 && row < length, "[layer_states] there is no row {} in a text of {} tokens", row, length);
  }
  check_usage(!rows.empty(), "[layer_states] no rows were given, expected at least one");
  const auto rows_of = [&](const Tensor& all) {  // [length, d_model] or [1, length, d_model]
    const Tensor flat = all.reshape({length, width});
    Tensor chosen = Tensor::empty({std::ssize(rows), width});
    for (int64_t i = 0; const int64_t row : rows) {
      chosen.slice(0, i, i + 1).copy_from(flat.slice(0, row, row + 1));
      ++i;
    }
    return chosen;
  };
  LayerStates result;
  model::Pass pass;
  pass.sequences.together.position_scale = model::position_scale(model, length);
  pass.on_stream = [&](const Tensor& stream) { result.states.push_back(rows_of(stream)); };
  result.states.push_back(rows_of(model::hidden(model, ids, pass)));
  if (model.config().transformer.attention.causal) result.logits = model::logits(model, result.states.back());
  return result;
}

}  // namespace alibi
