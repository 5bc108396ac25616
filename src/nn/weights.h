// Matrices of weights in the data types of model files: float32, bfloat16, float16 and q8_0. Products and embeddings
// read them as they are; the other operators take float32 or bfloat16.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Whether a matrix of weights may have this type.
constexpr bool is_weight_type(DType dtype) { return dtype != DType::int32; }

/// Bytes of a row of this many numbers, which are a multiple of 32 for q8_0.
inline int64_t bytes_of_row(DType dtype, int64_t numbers) {
  return numbers / numbers_in(dtype) * static_cast<int64_t>(size_of(dtype));
}

/// Extents counted in numbers: [rows, columns] also where an element is a block.
Shape shape_of_weights(const Tensor& weights);

/// y = the first `count` numbers of x, exactly, by the calling thread. q8_0: `count` is a multiple of 32.
void widen_row(const void* x, DType dtype, int64_t count, float* y);

/// A float32 copy of a contiguous tensor of the CPU.
Tensor widened(const Tensor& weights);

}  // namespace alibi::nn
