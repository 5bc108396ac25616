// Nesterov's accelerated gradient, for optimizers.
#pragma once

#include <cstdint>
#include <span>

namespace alibi::nn {

struct Nag {
  float learning_rate;
  float previous_rate;  ///< of the update before; the same as learning_rate in the first one
  float momentum;
  float weight_decay;
};

/// One step as fairseq's "nag" optimizer does it, which follows the learning rate: with c = learning_rate /
/// previous_rate (1 if that was 0), w = (1 - learning_rate weight_decay) w + momentum^2 c buffer
/// - (1 + momentum) learning_rate g, then buffer = momentum c buffer - learning_rate g. The buffer is zero before the
/// first step; the gradient is multiplied by gradient_factor first (clipping, averaging).
void nag(std::span<float> weight, std::span<const float> gradient, std::span<float> buffer, const Nag& options,
         float gradient_factor);

}  // namespace alibi::nn
