// Adaptive softmax (Grave et al. 2017), tied to the adaptive input (Baevski & Auli 2019): p(word) of band 0 is the
// softmax over its words and one entry per further band; of band b, p(band) times the softmax over the band's words,
// whose logits are table_b * (projection_b' * hidden). A row costs the first softmax and that of its target's band.
#pragma once

#include <span>

#include "alibi/tensor.h"
#include "core/random.h"
#include "nn/adaptive_input.h"

namespace alibi::nn {

/// nll[row] = -log p(targets[row]) in nats, with hidden [rows, d] and weights of its type, targets int32 [rows]. A row
/// whose target is -1 is ignored: its nll is 0. Throws Error naming a target outside the vocabulary. The logits exist
/// for a chunk of rows at a time.
void adaptive_cross_entropy(const Tensor& hidden, const AdaptiveWeights& weights, const Tensor& targets,
                            std::span<float> nll);

/// Forward and backward pass. dhidden is overwritten with gradient_scale * d(sum of nll), and the gradients of the
/// weights are added to the float32 gradients with the same scale. Dropout with this probability applies to the hidden
/// states and to the bands' projected states.
void adaptive_cross_entropy_with_gradients(const Tensor& hidden, const AdaptiveWeights& weights, const Tensor& targets,
                                           float gradient_scale, float dropout_probability, const core::Random& random,
                                           std::span<float> nll, Tensor& dhidden, AdaptiveWeights& gradients);

/// log p of every word: float32 [rows, vocab_size].
void adaptive_log_probabilities(const Tensor& hidden, const AdaptiveWeights& weights, Tensor& log_probabilities);

}  // namespace alibi::nn
