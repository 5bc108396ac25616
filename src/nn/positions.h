// Positions that are added to the input of a model.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// Vaswani et al. 2017, section 3.5: row p of table [length, d] gets sin(p / 10000^(2i/d)) at 2i and the cosine of the
/// same at 2i + 1. float32.
void sinusoids(Tensor& table);

/// y[b, t] = x[b, t] + table[t]; x, y [batch, length, d] (y may be x), table [length, d]; float32.
void add_positions(const Tensor& x, const Tensor& table, Tensor& y);
/// dtable[t] += sum over b of dy[b, t] (the gradient of x is dy itself).
void add_positions_backward(const Tensor& dy, Tensor& dtable);

}  // namespace alibi::nn
