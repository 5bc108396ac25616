// Random matrices in every data type of weights, and what they hold in float64.
#pragma once

#include <cmath>
#include <vector>

#include "core/random.h"
#include "nn/weights.h"
#include "testing.h"

namespace alibi::test {

constexpr DType kWeightTypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::q8_0};

/// [rows, columns]; the columns are a multiple of 32 for q8_0.
inline Tensor random_weights(int64_t rows, int64_t columns, uint64_t seed, DType dtype) {
  if (dtype != DType::q8_0) return random_tensor({rows, columns}, seed, 1, dtype);
  Tensor made = Tensor::empty({rows, columns / q8_block::size}, dtype);
  const core::Random random(seed, 8);
  for (int64_t i = 0; i < made.elements(); ++i) {
    q8_block& block = made.data<q8_block>()[i];
    block.scale = float16(random.normal(static_cast<uint64_t>(i)) / 64);
    for (int64_t n = 0; n < q8_block::size; ++n) {
      const auto draw = static_cast<uint64_t>(made.elements() + i * q8_block::size + n);
      block.values[n] = static_cast<int8_t>(std::lround(127 * (2 * random.uniform(draw) - 1)));
    }
  }
  return made;
}

/// Straight from the definition of the types.
inline std::vector<double> numbers_of(const Tensor& weights) {
  if (weights.dtype() != DType::q8_0) return doubles(weights);
  std::vector<double> numbers;
  for (int64_t i = 0; i < weights.elements(); ++i) {
    const q8_block& block = weights.data<q8_block>()[i];
    for (const int8_t value : block.values)
      numbers.push_back(static_cast<double>(static_cast<float>(block.scale)) * value);
  }
  return numbers;
}

}  // namespace alibi::test
