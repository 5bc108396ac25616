// Activation functions of the feed-forward block.
#pragma once

#include "alibi/activation.h"
#include "alibi/tensor.h"

namespace alibi::nn {

/// Whether the activation takes a gate and a value as input.
bool is_gated(Activation kind);

/// x [rows, F] -> y [rows, F]. Gated kinds read x [rows, 2F] = gate | up: swiglu is silu(gate) * up, geglu is
/// gelu(gate) * up, reglu is relu(gate) * up (Shazeer 2020). gelu is the exact form with erf, gelu_tanh the
/// approximation (Hendrycks & Gimpel 2016). y may be x for kinds without a gate.
void activate(Activation kind, const Tensor& x, Tensor& y);

/// Overwrites dx, which has the shape of x. dx may be x, or dy for kinds without a gate. If y is given, it receives the
/// recomputed activation, so the forward pass need not store it. y may be x or dy if it has the same shape and is not
/// dx.
void activate_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx, Tensor* y = nullptr);

/// y = sigmoid(gate) * x, all of one shape and type. y may be x.
void apply_gate(const Tensor& gate, const Tensor& x, Tensor& y);
/// Overwrites the gradients and y, which receives the recomputed result. dx may be dy, and dgate may be gate.
void apply_gate_backward(const Tensor& dy, const Tensor& gate, const Tensor& x, Tensor& dx, Tensor& dgate, Tensor& y);

}  // namespace alibi::nn
