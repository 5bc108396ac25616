#include "model/parameters.h"

#include <algorithm>

#include "core/pieces.h"
#include "nn/elementwise.h"

namespace alibi {
namespace {

/// Elements for one task: some ten microseconds of reading and writing memory.
constexpr int64_t parameter_grain = int64_t{1} << 15;

}  // namespace

void zero_gradients(const std::vector<Parameter*>& parameters) {
  Pieces pieces(parameter_grain);
  std::vector<float*> gradients;
  for (Parameter* parameter : parameters) {
    if (parameter->gradient.defined()) {
      pieces.add(parameter->gradient.elements());
      gradients.push_back(parameter->gradient.data<float>());
    } else {
      parameter->gradient = Tensor(parameter->value.shape());
    }
  }
  parallel_for(pieces.size(), [&](int64_t task) {
    const Piece piece = pieces.at(task);
    std::fill(gradients[piece.array] + piece.begin, gradients[piece.array] + piece.end, 0.0f);
  });
}

void round_operands(const std::vector<Parameter*>& parameters) {
  Pieces pieces(parameter_grain);
  for (Parameter* parameter : parameters) {
    if (!parameter->rounded.defined()) parameter->rounded = Tensor::empty(parameter->value.shape(), DType::bfloat16);
    pieces.add(parameter->value.elements());
  }
  parallel_for(pieces.size(), [&](int64_t task) {
    const Piece piece = pieces.at(task);
    const Parameter& parameter = *parameters[piece.array];
    nn::convert_row(parameter.value.data<float>() + piece.begin, DType::float32, piece.end - piece.begin,
                    parameter.rounded.data<bfloat16>() + piece.begin, DType::bfloat16);
  });
}

}  // namespace alibi
