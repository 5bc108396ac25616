// Operations over flat arrays of parameters and gradients, for optimizers.
#pragma once

#include <cstdint>
#include <span>

namespace alibi::nn {

/// Sum of the squares in float64. NaN or infinite values show in the result.
double sum_of_squares(const float* values, int64_t count);

struct AdamW {
  float learning_rate, beta1, beta2, eps, weight_decay;
};

/// One step of Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2; the decay is multiplied by the
/// learning rate as in PyTorch). m and v are the moments, zero before step 1; the gradient is multiplied by
/// gradient_factor first (clipping, averaging).
void adamw(std::span<float> weight, std::span<const float> gradient, std::span<float> m, std::span<float> v,
           const AdamW& options, int64_t step, float gradient_factor);

}  // namespace alibi::nn
