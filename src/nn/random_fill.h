// Tensors of random numbers: element i is a function of `random` and i.
#pragma once

#include "alibi/tensor.h"
#include "core/random.h"

namespace alibi::nn {

/// y = independent draws from N(0, deviation^2); contiguous float32.
void fill_normal(const core::Random& random, float deviation, Tensor& y);
/// y = independent draws from [-bound, bound).
void fill_uniform(const core::Random& random, float bound, Tensor& y);

}  // namespace alibi::nn
