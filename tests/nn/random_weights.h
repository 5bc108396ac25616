// Random matrices in every data type of weights, and what they hold in float64.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "formats/weight_types.h"
#include "nn/weights.h"
#include "testing.h"

namespace alibi::test {

constexpr DType kWeightTypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::q8_0,
                                  DType::q4_0,    DType::q4_k,     DType::q5_k,    DType::q6_k};

/// [rows, columns]; the columns are a multiple of those of an element.
inline Tensor random_weights(int64_t rows, int64_t columns, uint64_t seed, DType dtype) {
  if (numbers_in(dtype) == 1) return random_tensor({rows, columns}, seed, 1, dtype);
  Tensor made = Tensor::empty({rows, columns / numbers_in(dtype)}, dtype);
  const core::Random random(seed, 8);
  auto* const bytes = static_cast<uint8_t*>(made.raw());
  for (size_t i = 0; i < made.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random.below(i, 256));
  const bool is_k = dtype == DType::q4_k || dtype == DType::q5_k;
  const size_t first = dtype == DType::q6_k ? 208 : 0;
  for (size_t at = 0; at < made.bytes(); at += size_of(dtype)) {
    for (size_t scale = first; scale <= first + (is_k ? 2 : 0); scale += 2) {
      const float16 small(random.normal(at + scale) / (numbers_in(dtype) == 32 ? 64 : 512));
      std::memcpy(bytes + at + scale, &small, sizeof small);
    }
  }
  return made;
}

/// Straight from the definition of the types.
inline std::vector<double> numbers_of(const Tensor& weights) {
  if (numbers_in(weights.dtype()) == 1) return doubles(weights);
  const formats::WeightType& type = formats::weight_type(weights.dtype());
  std::vector<float> numbers(static_cast<size_t>(weights.elements() * numbers_in(weights.dtype())));
  for (int64_t i = 0; i < weights.elements(); ++i) {
    type.decode(static_cast<const std::byte*>(weights.raw()) + i * type.block_bytes, &numbers[i * type.block_elements]);
  }
  return {numbers.begin(), numbers.end()};
}

}  // namespace alibi::test
