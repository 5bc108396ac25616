// Operators over many tensors at once, such as all parameters of a model: cut into tasks together, so that all threads
// have work also where most tensors are small. Tensors are contiguous and, unless it says otherwise, float32.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"
#include "nn/flat.h"
#include "nn/nag.h"

namespace alibi::nn {

/// Handles; whatever is written goes to the memory that they share.
using Tensors = std::vector<Tensor>;

/// All elements = value
void fill(const Tensors& tensors, float value);
/// Each of `to` = that of `from`, rounded where it is bfloat16.
void convert(const Tensors& from, const Tensors& to);
/// Of all elements, in float64; the order of the sum follows from the shapes.
double sum_of_squares(const Tensors& tensors);

/// One step of an optimizer (flat.h, nag.h); decays[i]: options.weight_decay is for tensor i, too.
void adamw(const Tensors& weights, const Tensors& gradients, const Tensors& m, const Tensors& v,
           const std::vector<bool>& decays, const AdamW& options, int64_t step, float gradient_factor);
void nag(const Tensors& weights, const Tensors& gradients, const Tensors& buffers, const std::vector<bool>& decays,
         const Nag& options, float gradient_factor);

}  // namespace alibi::nn
