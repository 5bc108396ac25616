// Operators over many tensors at once, such as all parameters of a model: fill, conversion, norm and optimizer steps.
// The tensors are divided into tasks together, so that all threads have work even if most tensors are small. Tensors
// are contiguous and, unless stated otherwise, float32.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Handles to tensors. Results are written to the memory that they share.
using Tensors = std::vector<Tensor>;

/// Sets all elements to `value`.
void fill(const Tensors& tensors, float value);
/// Copies each of `from` to `to`, with rounding to bfloat16 if necessary.
void convert(const Tensors& from, const Tensors& to);
/// Sum over all elements in float64. The order of the sum depends only on the shapes. NaN and infinity propagate to the
/// result.
double sum_of_squares(const Tensors& tensors);

struct AdamW {
  float learning_rate, beta1, beta2, eps, weight_decay;
};

/// Step number `step`, counted from 1, of Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2; the
/// decay is multiplied by the learning rate as in PyTorch). m and v are the moments, zero before step 1. Gradients are
/// multiplied by gradient_factor first (clipping, averaging). decays[i]: whether weight i decays.
void adamw(const Tensors& weights, const Tensors& gradients, const Tensors& m, const Tensors& v,
           const std::vector<bool>& decays, const AdamW& options, int64_t step, float gradient_factor);

struct Nag {
  float learning_rate;
  float previous_rate;  ///< learning rate of the previous update; in the first update, learning_rate
  float momentum;
  float weight_decay;
};

/// A step of Nesterov's accelerated gradient as in fairseq's optimizer "nag", which adapts to changes of the learning
/// rate. With c = learning_rate / previous_rate (1 if previous_rate is 0): w = (1 - learning_rate weight_decay) w +
/// momentum^2 c buffer - (1 + momentum) learning_rate g, then buffer = momentum c buffer - learning_rate g. The buffers
/// are zero before the first step. Gradients are first multiplied by gradient_factor.
void nag(const Tensors& weights, const Tensors& gradients, const Tensors& buffers, const std::vector<bool>& decays,
         const Nag& options, float gradient_factor);

}  // namespace alibi::nn
