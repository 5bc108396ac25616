// From tensors and options to a checked Problem.
#pragma once

#include "attention/problem.h"

namespace alibi::kernels {

/// Throws Error naming the argument. `operation` is what messages begin with.
Problem make_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const AttentionOptions& options);

/// Throws Error if an output begins where another tensor does, or if both are contiguous and share memory. (Views that
/// lie in each other's gaps, as q, k and v of one product do, pass.)
void check_apart(const char* operation, const char* output_name, const Tensor& output, const char* name,
                 const Tensor& tensor);

/// Checks the further arguments of attention_backward and puts them into the problem.
BiasSums add_gradients(Problem& problem, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& out, const AttentionState& state, Tensor& dq, Tensor& dk, Tensor& dv,
                       const AttentionBiasGradients& bias_gradients);

}  // namespace alibi::kernels
