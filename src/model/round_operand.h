// The bfloat16 copy of a parameter.
#pragma once

#include "alibi/transformer.h"
#include "nn/elementwise.h"

namespace alibi {

/// Makes or renews a parameter's bfloat16 copy.
inline void round_operand(Parameter& parameter) {
  if (!parameter.rounded.defined()) parameter.rounded = Tensor::empty(parameter.value.shape(), DType::bfloat16);
  nn::convert(parameter.value, parameter.rounded);
}

}  // namespace alibi
