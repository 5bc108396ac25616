// The two halves of the vector kernel (see Kernel in problem.h).
#pragma once

#include "attention/problem.h"

namespace alibi::kernels {

void vector_forward(const Problem& problem, AttentionState* state);
void vector_backward(const Problem& problem, const AttentionState& state, const BiasSums& sums);

}  // namespace alibi::kernels
