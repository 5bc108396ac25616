// What parameters hold before training.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi {

/// Independent draws around 0, or one value.
struct Start {
  enum class Kind : uint8_t { constant, normal, uniform };
  Kind kind;
  float value;  ///< the constant, the standard deviation, or the bound on both sides

  static Start constant(float value) { return {Kind::constant, value}; }
  static Start normal(float deviation) { return {Kind::normal, deviation}; }
  static Start uniform(float bound) { return {Kind::uniform, bound}; }
  /// Glorot & Bengio 2010, equation 16, times a gain.
  static Start xavier(int64_t fan_in, int64_t fan_out, float gain = 1);
  /// What PyTorch gives the weight and the bias of a linear layer: within 1 / sqrt(fan_in).
  static Start linear(int64_t fan_in);
};

/// Fills a contiguous float32 tensor; element i is a function of `random` and i.
void initialize(Tensor& values, Start start, const Random& random);

}  // namespace alibi
