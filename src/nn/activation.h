// Activation functions of the feed-forward block.
#pragma once

#include "alibi/activation.h"
#include "alibi/tensor.h"

namespace alibi::nn {

/// Whether the kind reads a gate and a value side by side.
bool is_gated(Activation kind);

/// x [rows, F] -> y [rows, F]. Gated kinds read x [rows, 2F] = gate | up: swiglu is silu(gate) * up, geglu is
/// gelu(gate) * up (Shazeer 2020). gelu is the exact form with erf, gelu_tanh the approximation (Hendrycks & Gimpel
/// 2016). y may be x for kinds without a gate.
void activate(Activation kind, const Tensor& x, Tensor& y);

/// dx, shaped like x, is overwritten; it may be x, and for kinds without a gate dy. y, if given, becomes the value
/// again, so that it need not be kept from the forward pass; it may be whichever of x and dy has its shape and is not
/// dx.
void activate_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx, Tensor* y = nullptr);

}  // namespace alibi::nn
