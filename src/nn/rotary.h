// Rotary position embedding (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2).
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::nn {

/// x, y [batch, length, heads, head_dim], any strides with a unit inner stride; y may be x. Row i has position
/// position_offset + i. All of head_dim is rotated, in the half-split pairing of GPT-NeoX and LLaMA: elements
/// (i, i + head_dim / 2) turn by position * theta^(-2i / head_dim). Angles are kept in float64.
void rotary(const Tensor& x, int64_t position_offset, float theta, Tensor& y);
/// The inverse rotation, which is the transpose; dx may be dy.
void rotary_backward(const Tensor& dy, int64_t position_offset, float theta, Tensor& dx);

}  // namespace alibi::nn
