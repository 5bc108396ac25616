// From tensors and options to a checked Problem.
#pragma once

#include "attention/problem.h"

namespace alibi::kernels {

/// Throws Error naming the argument. `operation` is what messages begin with.
Problem make_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const AttentionOptions& options);

/// Checks the further arguments of attention_backward and puts them into the problem.
BiasSums add_gradients(Problem& problem, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionState& state, Tensor& dq, Tensor& dk, Tensor& dv,
                       const AttentionBiasGradients& bias_gradients);

}  // namespace alibi::kernels
