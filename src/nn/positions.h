// Positions that are added to the input of a model, and positions that rotate queries and keys.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Vaswani et al. 2017, section 3.5: row p of table [length, d] has sin(p / 10000^(2i/d)) at 2i and the cosine of the
/// same angle at 2i + 1. float32.
void sinusoids(Tensor& table);

/// y[b, t] = x[b, t] + table[t]; x, y [batch, length, d] (y may be x), table [length, d]; float32.
void add_positions(const Tensor& x, const Tensor& table, Tensor& y);
/// dtable[t] += sum over b of dy[b, t] (the gradient of x is dy itself).
void add_positions_backward(const Tensor& dy, Tensor& dtable);

// Rotary position embedding (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2).

struct Frequencies {
  std::vector<double> of_pairs;  ///< [head_dim / 2]: angle of each pair of elements from one position to the next
  double magnitude = 1;
};

/// scale * theta^(-2i / head_dim)
Frequencies rotary_frequencies(int64_t head_dim, double theta, double scale = 1);

/// x, y [batch, length, heads, head_dim], any strides with a unit inner stride; y may be x. Row i has position
/// position_offset + i. All of head_dim is rotated, with the half-split pairing of GPT-NeoX and LLaMA: the elements (i,
/// i + head_dim / 2) are rotated by position * frequency i and multiplied by the magnitude. Angles are computed in
/// float64.
void rotary(const Tensor& x, int64_t position_offset, const Frequencies& frequencies, Tensor& y);
/// The inverse rotation for the frequencies theta^(-2i / head_dim), which is the transpose; dx may be dy.
void rotary_backward(const Tensor& dy, int64_t position_offset, float theta, Tensor& dx);

}  // namespace alibi::nn
