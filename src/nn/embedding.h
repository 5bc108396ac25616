// Token embedding.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// y [rows, d] = scale * table[ids], with ids int32 [rows] (or any shape of as many) and table [vocab, d]. If y is
/// float32, the table may be of any type of weights (nn/weights.h).
/// Throws Error naming the first id outside the table.
void embedding(const Tensor& ids, const Tensor& table, float scale, Tensor& y);

/// dtable[ids] += scale * dy; dtable is float32.
void embedding_backward(const Tensor& dy, const Tensor& ids, float scale, Tensor& dtable);

}  // namespace alibi::nn
