// The residual stream inside a model, to compare it layer by layer with another implementation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

struct LayerStates {
  /// 2 * layers + 2 tensors [rows, d_model]: the stream before the first layer, after the attention and after the
  /// feed-forward network of each layer, and the final hidden states. The stream of models that normalize it
  /// (post-norm) is taken after the norm.
  std::vector<Tensor> states;
  Tensor logits;  ///< [rows, vocab_size]; undefined for encoders
};

/// States and logits of some rows (positions, in any order) of ids int32 [1, length]. All ids are read. Throws
/// UsageError if there is no such row.
ALIBI_API LayerStates layer_states(const LanguageModel& model, const Tensor& ids, std::span<const int64_t> rows);

}  // namespace alibi
