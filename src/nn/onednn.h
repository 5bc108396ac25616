// One matrix product on the calling thread, by oneDNN.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::nn {

/// A matrix in memory: rows of `stride` elements, read transposed if asked to.
struct Matrix {
  void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
  DType dtype = DType::float32;

  /// The part that starts at a row and column of the matrix as read (after the transposition).
  Matrix at(int64_t row, int64_t column) const {
    const int64_t offset = transposed ? column * stride + row : row * stride + column;
    Matrix part = *this;
    part.data = static_cast<char*>(data) + offset * static_cast<int64_t>(size_of(dtype));
    return part;
  }
};

/// c [m, n] (= or +=) a [m, k] * b [k, n] + bias, with c not transposed and bias null or [n] (see bias_dtype).
/// Runs on the calling thread alone, so its bits depend on the arguments only. May be called from many threads.
struct Product {
  int64_t m, n, k;
  Matrix a, b, c;
  const void* bias = nullptr;
  DType bias_dtype = DType::float32;
  bool accumulate = false;
};
void run(const Product& product);

/// to [columns, rows] = the transpose of from [rows, columns], whose rows are `stride` elements apart; float32. On the
/// calling thread alone.
void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to);

}  // namespace alibi::nn
