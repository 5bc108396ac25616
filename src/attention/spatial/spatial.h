// A call of attention_positions() with checked arguments. It becomes a problem with coordinates, for the vector kernel.
#pragma once

#include "alibi/attention_positions.h"
#include "attention/problem.h"

namespace alibi::kernels {

/// Checks the arguments and orders the tokens. The sequences leave out padding.
Problem make_spatial_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionPositions& positions, const AttentionPositionsOptions& options,
                             const Tensor& out);

}  // namespace alibi::kernels
