// Checks of arguments.
#pragma once

#include <cmath>

#include "alibi/tensor.h"
#include "core/check.h"
#include "nn/kernel_args.h"

namespace alibi::nn {

/// A contiguous tensor as a matrix: all axes except the last one are rows.
struct Rows {
  int64_t rows = 0;
  int64_t features = 0;
};

inline bool is_floating(DType dtype) { return dtype == DType::float32 || dtype == DType::bfloat16; }

inline Rows rows_of(const char* operation, const char* name, const Tensor& tensor) {
  check(tensor.axes() >= 1 && is_floating(tensor.dtype()), "[{}] {} is {} {}, expected floating-point rows", operation,
        name, name_of(tensor.dtype()), to_string(tensor.shape()));
  check(tensor.contiguous(), "[{}] {} {} has strides {}, expected a contiguous tensor", operation, name,
        to_string(tensor.shape()), to_string(tensor.strides()));
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < tensor.axes(); ++axis) rows *= tensor.size(axis);
  return {rows, tensor.size(-1)};
}

/// Checks for a contiguous tensor with these rows, features and data type.
inline void check_rows(const char* operation, const char* name, const Tensor& tensor, Rows expected, DType dtype) {
  const Rows found = rows_of(operation, name, tensor);
  check(found.rows == expected.rows && found.features == expected.features && tensor.dtype() == dtype,
        "[{}] {} is {} {}, expected {} with {} rows of {}", operation, name, name_of(tensor.dtype()),
        to_string(tensor.shape()), name_of(dtype), expected.rows, expected.features);
}

/// Checks for `count` contiguous elements of one data type.
inline void check_vector(const char* operation, const char* name, const Tensor& tensor, int64_t count, DType dtype) {
  check(tensor.defined() && tensor.dtype() == dtype && tensor.contiguous() && tensor.elements() == count,
        "[{}] {} is {} {}, expected {} contiguous {} elements", operation, name, name_of(tensor.dtype()),
        to_string(tensor.shape()), count, name_of(dtype));
}

/// A parameter vector as float32, the only type of parameters that kernels read.
inline Tensor float_vector(const char* operation, const char* name, const Tensor& tensor, int64_t count) {
  check_vector(operation, name, tensor, count, tensor.dtype() == DType::bfloat16 ? DType::bfloat16 : DType::float32);
  return tensor.dtype() == DType::float32 ? tensor : tensor.to(DType::float32);
}

/// Dropout in the form that kernels use.
inline Dropout dropout_of(const char* operation, float probability, const core::Random& random) {
  check(probability >= 0 && probability < 1, "[{}] probability is {}, expected 0 <= probability < 1", operation,
        probability);
  // (word >> 8) * 2^-24 < probability  <=>  (word >> 8) < ceil(probability * 2^24)
  return {random, static_cast<uint32_t>(std::ceil(static_cast<double>(probability) * 0x1p24)), 1 / (1 - probability)};
}

/// Rows per task for row-wise work: about 16k elements, independent of the number of threads.
inline int64_t rows_per_task(int64_t features) { return features >= 16384 ? 1 : 16384 / (features > 0 ? features : 1); }

}  // namespace alibi::nn
