// Adaptive input (Baevski & Auli 2019): token embedding from the tables of a vocabulary in bands.
#pragma once

#include "alibi/tensor.h"
#include "nn/adaptive_bands.h"

namespace alibi::nn {

/// y [rows, d] = scale * table[id] * projection' of the id's band, with ids int32 [rows]; y is float32 or of the
/// weights' type. Throws Error naming the first id outside the vocabulary.
void adaptive_input(const Tensor& ids, const AdaptiveWeights& weights, float scale, Tensor& y);

/// Adds to the gradients, which are float32, of the tables and projections.
void adaptive_input_backward(const Tensor& dy, const Tensor& ids, const AdaptiveWeights& weights, float scale,
                             AdaptiveWeights& gradients);

}  // namespace alibi::nn
