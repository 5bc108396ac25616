#include "nn/plain_product.h"

namespace alibi::nn {
namespace {

double element(const void* data, DType dtype) {
  return dtype == DType::bfloat16 ? static_cast<float>(*static_cast<const bfloat16*>(data))
                                  : *static_cast<const float*>(data);
}

double element(const Matrix& matrix, int64_t row, int64_t column) {
  return element(matrix.at(row, column).data, matrix.dtype);
}

}  // namespace

void run_plainly(const Product& p) {
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      const Matrix c = p.c.at(row, column);
      double sum = p.accumulate ? element(c.data, c.dtype) : 0;
      if (p.bias != nullptr) {
        const auto* const bias = static_cast<const char*>(p.bias);
        sum += element(bias + column * static_cast<int64_t>(size_of(p.bias_dtype)), p.bias_dtype);
      }
      for (int64_t i = 0; i < p.k; ++i) sum += element(p.a, row, i) * element(p.b, i, column);
      if (c.dtype == DType::bfloat16) {
        *static_cast<bfloat16*>(c.data) = bfloat16(static_cast<float>(sum));
      } else {
        *static_cast<float*>(c.data) = static_cast<float>(sum);
      }
    }
  }
}

void turn_plainly(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * stride + column];
  }
}

}  // namespace alibi::nn
