#include "nn/widened_product.h"

#include <algorithm>
#include <memory>

#include "core/memory.h"
#include "nn/elementwise.h"
#include "nn/onednn_engine.h"

namespace alibi::nn {
namespace {

// Large enough that turning operands into float32 costs little beside the products that use them.
constexpr int64_t block_m = 256, block_n = 512, block_k = 512;
constexpr int64_t workspace_bytes = sizeof(float) * (block_m * block_k + block_k * block_n + block_m * block_n);

/// to = from, [rows, columns] as read, in the order in which they lie in memory; to's type may be another one.
void copy_block(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to) {
  const int64_t lines = from.transposed ? columns : rows, length = from.transposed ? rows : columns;
  const auto step = [](const Matrix& matrix) { return matrix.stride * static_cast<int64_t>(size_of(matrix.dtype)); };
  for (int64_t line = 0; line < lines; ++line) {
    convert_row(static_cast<const char*>(from.data) + line * step(from), from.dtype, length,
                static_cast<char*>(to.data) + line * step(to), to.dtype);
  }
}

/// The block in float32, in `memory` where it is not yet.
Matrix widened(const Matrix& block, int64_t rows, int64_t columns, float* memory) {
  if (block.dtype == DType::float32) return block;
  const Matrix result{memory, block.transposed ? rows : columns, block.transposed, DType::float32};
  copy_block(block, rows, columns, result);
  return result;
}

/// The calling thread's blocks of a, b and c.
float* workspace() {
  thread_local const std::shared_ptr<void> memory = core::allocate(workspace_bytes, false);
  return static_cast<float*>(memory.get());
}

/// One block of c, [rows, columns], with the whole of the inner axis.
void run_block(const Product& p, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  float* const memory_of_a = workspace();
  float* const memory_of_b = memory_of_a + block_m * block_k;
  float* const memory_of_c = memory_of_b + block_k * block_n;
  const Matrix c = p.c.at(row, column);
  const bool in_place = c.dtype == DType::float32;
  const Matrix sum = in_place ? c : Matrix{memory_of_c, columns, false, DType::float32};
  if (p.accumulate && !in_place) copy_block(c, rows, columns, sum);
  if (p.bias != nullptr) {
    const Matrix bias{const_cast<void*>(p.bias), p.n, false, p.bias_dtype};
    const Matrix part = widened(bias.at(0, column), 1, columns, memory_of_a);
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = static_cast<float*>(sum.at(r, 0).data);
      const auto* const from = static_cast<const float*>(part.data);
      for (int64_t i = 0; i < columns; ++i) to[i] = (p.accumulate ? to[i] : 0) + from[i];
    }
  }
  for (int64_t inner = 0; inner < p.k; inner += block_k) {
    const int64_t depth = std::min(block_k, p.k - inner);
    const Matrix a = widened(p.a.at(row, inner), rows, depth, memory_of_a);
    const Matrix b = widened(p.b.at(inner, column), depth, columns, memory_of_b);
    const bool adds = inner > 0 || p.accumulate || p.bias != nullptr;
    run({.m = rows, .n = columns, .k = depth, .a = a, .b = b, .c = sum, .accumulate = adds});
  }
  if (!in_place) copy_block(sum, rows, columns, c);
}

}  // namespace

int64_t bytes_to_widen(DType dtype) { return has_products(dtype) ? 0 : workspace_bytes; }

void run_widened(const Product& p) {
  for (int64_t row = 0; row < p.m; row += block_m) {
    for (int64_t column = 0; column < p.n; column += block_n) {
      run_block(p, row, column, std::min(block_m, p.m - row), std::min(block_n, p.n - column));
    }
  }
}

}  // namespace alibi::nn
