// Matrices of weights in the data types of model files: float32, bfloat16, float16 and blocks of
// quantized numbers. Products and embeddings read them as they are; the other operators take float32 or bfloat16.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Whether a matrix of weights may have this type.
constexpr bool is_weight_type(DType dtype) { return dtype != DType::int32; }

/// Bytes of a row of this many numbers, which are a multiple of those in an element.
inline int64_t bytes_of_row(DType dtype, int64_t numbers) {
  return numbers / numbers_in(dtype) * static_cast<int64_t>(size_of(dtype));
}

/// Extents counted in numbers: [rows, columns] also where an element is a block.
Shape shape_of_weights(const Tensor& weights);

/// y = the first `count` numbers of x, a multiple of those in an element, by the calling thread. They are exact, but
/// for one rounding in q4_k and q5_k.
void widen_row(const void* x, DType dtype, int64_t count, float* y);

/// A float32 copy of a contiguous tensor of the CPU.
Tensor widened(const Tensor& weights);

}  // namespace alibi::nn
