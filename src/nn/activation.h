// Activation functions of the feed-forward block.
#pragma once

#include "alibi/tensor.h"
#include "alibi/transformer.h"

namespace alibi::nn {

/// Whether the kind reads a gate and a value side by side.
bool is_gated(Activation kind);

/// x [rows, F] -> y [rows, F]. Gated kinds read x [rows, 2F] = gate | up: swiglu is silu(gate) * up, geglu is
/// gelu(gate) * up (Shazeer 2020). gelu is the exact form with erf, gelu_tanh the approximation (Hendrycks & Gimpel
/// 2016). y may be x for kinds without a gate.
void activate(Activation kind, const Tensor& x, Tensor& y);

/// dx, shaped like x, is overwritten; for kinds without a gate it may be dy or x.
void activate_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx);

}  // namespace alibi::nn
