// Operators over many tensors at once, such as all parameters of a model: fill, conversion, norm and the steps of the
// optimizers. The tensors are cut into tasks together, so that all threads have work also where most tensors are small.
// Tensors are contiguous and, unless it says otherwise, float32.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Handles; whatever is written goes to the memory that they share.
using Tensors = std::vector<Tensor>;

/// All elements = value
void fill(const Tensors& tensors, float value);
/// Each of `to` = that of `from`, rounded where it is bfloat16.
void convert(const Tensors& from, const Tensors& to);
/// Of all elements, in float64; the order of the sum follows from the shapes. NaN or infinite values show in the
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
  float previous_rate;  ///< of the update before; in the first update the same as learning_rate
  float momentum;
  float weight_decay;
};

/// A step of Nesterov's accelerated gradient as fairseq's optimizer "nag" does it, which follows the learning rate:
/// with c = learning_rate / previous_rate (1 if that was 0), w = (1 - learning_rate weight_decay) w + momentum^2 c
/// buffer
/// - (1 + momentum) learning_rate g, then buffer = momentum c buffer - learning_rate g. The buffers are zero before the
/// first step. Gradients are multiplied by gradient_factor first.
void nag(const Tensors& weights, const Tensors& gradients, const Tensors& buffers, const std::vector<bool>& decays,
         const Nag& options, float gradient_factor);

}  // namespace alibi::nn
