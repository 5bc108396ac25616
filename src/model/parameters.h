// What is done to all parameters at once, by all threads.
#pragma once

#include <vector>

#include "alibi/transformer.h"

namespace alibi {

/// Gradients that are zero; makes those that are not there.
void zero_gradients(const std::vector<Parameter*>& parameters);

/// Makes or renews their bfloat16 copies.
void round_operands(const std::vector<Parameter*>& parameters);

}  // namespace alibi
