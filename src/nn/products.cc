#include "nn/products.h"

#include <algorithm>
#include <array>
#include <memory>

#include "core/memory.h"
#include "core/parallel.h"
#include "nn/elementwise.h"
#include "nn/matmul_plan.h"
#include "nn/reduce.h"

namespace alibi::nn {
namespace {

/// The inner axis is empty, so c = bias.
void fill_without_products(const Product& p) {
  if (p.accumulate) return;
  Tensor c = Tensor::view(p.c.data, {p.m, p.n}, p.c.dtype, {p.c.stride, 1});
  if (p.bias == nullptr) return c.fill(0);
  const Tensor bias = Tensor::view(const_cast<void*>(p.bias), {1, p.n}, p.bias_dtype);
  for (int64_t row = 0; row < p.m; ++row) c.slice(0, row, row + 1).copy_from(bias);
}

ProductShape shape_of(const Product& p) {
  const bool may_split_k = p.bias == nullptr && p.c.dtype == DType::float32 && p.c.stride == p.n;
  return {p.m, p.n, p.k, !p.a.transposed, p.b.transposed, may_split_k};
}

/// A copy of an operand with the inner axis first, made in tasks if the plan requires it.
struct Transposed {
  Transposed(Matrix& operand, bool wanted, int64_t outer, int64_t inner, bool is_b)
      : from(operand), lines(outer), k(inner) {
    if (!wanted) return;
    copy = Tensor::empty({lines, k});
    tasks = core::ceil_div(lines, lines_of_task);
    operand = {copy.raw(), k, is_b, DType::float32};
  }

  void run(int64_t task) const {
    const int64_t line = task * lines_of_task, count = std::min(lines_of_task, lines - line);
    const float* const first = static_cast<const float*>(from.data) + line;
    float* const to = copy.data<float>() + line * k;
    if (product_provider().transpose(first, from.stride, k, count, to)) return;
    for (int64_t column = 0; column < count; ++column) {
      for (int64_t row = 0; row < k; ++row) to[column * k + row] = first[row * from.stride + column];
    }
  }

  static constexpr int64_t lines_of_task = 128;
  Matrix from;
  int64_t lines, k, tasks = 0;
  Tensor copy;
};

/// Number `index` of an element.
double element(const void* data, DType dtype, int64_t index = 0) {
  switch (dtype) {
    case DType::bfloat16:
      return static_cast<float>(*static_cast<const bfloat16*>(data));
    case DType::float16:
      return static_cast<float>(*static_cast<const float16*>(data));
    case DType::float32:
      return *static_cast<const float*>(data);
    default: {
      float block[256];
      widen_row(data, dtype, numbers_in(dtype), block);
      return block[index];
    }
  }
}

double element(const Matrix& matrix, int64_t row, int64_t column) {
  const int64_t inside = matrix.transposed ? row : column;
  return element(matrix.at(row, column).data, matrix.dtype, inside % numbers_in(matrix.dtype));
}

// Large enough that converting operands costs little beside the products that use them.
constexpr int64_t block_m = 256, block_n = 512, block_k = 512;
constexpr int64_t workspace_bytes = sizeof(float) * (block_m * block_k + block_k * block_n + block_m * block_n);

/// to = from, [rows, columns] as read, in the order in which they lie in memory; float32 or bfloat16 each.
void copy_block(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to) {
  const int64_t lines = from.transposed ? columns : rows, length = from.transposed ? rows : columns;
  const auto step = [](const Matrix& matrix) { return matrix.stride * static_cast<int64_t>(size_of(matrix.dtype)); };
  for (int64_t line = 0; line < lines; ++line) {
    convert_row(static_cast<const char*>(from.data) + line * step(from), from.dtype, length,
                static_cast<char*>(to.data) + line * step(to), to.dtype);
  }
}

/// The type in which the provider multiplies the operands: that of a if it has such products and b is not more exact,
/// else float32.
DType type_of_products(const Product& p) {
  return p.b.dtype != DType::float32 && product_provider().has_products(p.a.dtype) ? p.a.dtype : DType::float32;
}

/// The block as float32 or bfloat16, converted in `memory` if necessary.
Matrix converted(const Matrix& block, int64_t rows, int64_t columns, DType dtype, float* memory) {
  if (block.dtype == dtype) return block;
  const int64_t lines = block.transposed ? columns : rows, length = block.transposed ? rows : columns;
  const int64_t step = block.stride * static_cast<int64_t>(size_of(block.dtype));
  std::array<float, std::max(block_n, block_k)> wide;
  for (int64_t line = 0; line < lines; ++line) {
    float* const to = dtype == DType::float32 ? memory + line * length : wide.data();
    widen_row(static_cast<const char*>(block.data) + line * step, block.dtype, length, to);
    if (dtype == DType::float32) continue;
    convert_row(to, DType::float32, length, reinterpret_cast<bfloat16*>(memory) + line * length, dtype);
  }
  return {memory, length, block.transposed, dtype};
}

/// The calling thread's blocks of a, b and c.
float* workspace() {
  thread_local const std::shared_ptr<void> memory = core::allocate(workspace_bytes, false);
  return static_cast<float*>(memory.get());
}

/// Computes one block of c, [rows, columns], over the whole inner axis.
void run_block(const Product& p, DType dtype, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  float* const memory_of_a = workspace();
  float* const memory_of_b = memory_of_a + block_m * block_k;
  float* const memory_of_c = memory_of_b + block_k * block_n;
  const Matrix c = p.c.at(row, column);
  const bool in_place = c.dtype == DType::float32;
  const Matrix sum = in_place ? c : Matrix{memory_of_c, columns, false, DType::float32};
  if (p.accumulate && !in_place) copy_block(c, rows, columns, sum);
  if (p.bias != nullptr) {
    const Matrix bias{const_cast<void*>(p.bias), p.n, false, p.bias_dtype};
    const Matrix part = converted(bias.at(0, column), 1, columns, DType::float32, memory_of_a);
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = static_cast<float*>(sum.at(r, 0).data);
      const auto* const from = static_cast<const float*>(part.data);
      for (int64_t i = 0; i < columns; ++i) to[i] = (p.accumulate ? to[i] : 0) + from[i];
    }
  }
  for (int64_t inner = 0; inner < p.k; inner += block_k) {
    const int64_t depth = std::min(block_k, p.k - inner);
    const Matrix a = converted(p.a.at(row, inner), rows, depth, dtype, memory_of_a);
    const Matrix b = converted(p.b.at(inner, column), depth, columns, dtype, memory_of_b);
    const bool adds = inner > 0 || p.accumulate || p.bias != nullptr;
    multiply({.m = rows, .n = columns, .k = depth, .a = a, .b = b, .c = sum, .accumulate = adds});
  }
  if (!in_place) copy_block(sum, rows, columns, c);
}

/// Computes each row on its own.
void multiply_rows(const Product& p) {
  core::parallel_for(p.m, [&](int64_t row) {
    Product part = p;
    part.m = 1;
    part.a = p.a.at(row, 0);
    part.c = p.c.at(row, 0);
    multiply(part);
  });
}

}  // namespace

void multiply_in_tasks(const Product& product) {
  Product p = product;
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return fill_without_products(p);
  if (IntegerProducts::wanted() && numbers_in(p.b.dtype) > 1) return integer_gemm(p);
  if (is_skinny(p)) return skinny_gemm(p);
  if (IndependentRows::wanted()) return multiply_rows(p);
  const MatmulPlan plan =
      plan_matmul(shape_of(p), product_kernels(p.a.dtype == p.b.dtype ? p.a.dtype : DType::float32));
  const Transposed a(p.a, plan.transpose_a, p.m, p.k, false), b(p.b, plan.transpose_b, p.n, p.k, true);
  core::parallel_for(a.tasks + b.tasks, [&](int64_t task) { task < a.tasks ? a.run(task) : b.run(task - a.tasks); });
  const int64_t sums = plan.pieces_k - 1;
  const Tensor partials = sums > 0 ? Tensor::empty({sums, p.m, p.n}) : Tensor();
  core::parallel_for(plan.tasks(), [&](int64_t task) {
    const int64_t piece = task / (plan.tiles_m * plan.tiles_n);
    const int64_t tile = task % (plan.tiles_m * plan.tiles_n);
    const int64_t row = tile / plan.tiles_n * plan.tile_m, column = tile % plan.tiles_n * plan.tile_n;
    const int64_t inner = piece * plan.tile_k;
    Product part = p;
    part.m = std::min(plan.tile_m, p.m - row);
    part.n = std::min(plan.tile_n, p.n - column);
    part.k = std::min(plan.tile_k, p.k - inner);
    part.a = p.a.at(row, inner);
    part.b = p.b.at(inner, column);
    if (piece > 0) {
      part.c = Matrix{partials.data<float>() + (piece - 1) * p.m * p.n, p.n}.at(row, column);
      part.accumulate = false;
    } else {
      part.c = p.c.at(row, column);
      if (p.bias != nullptr) {
        part.bias = static_cast<const char*>(p.bias) + column * static_cast<int64_t>(size_of(p.bias_dtype));
      }
    }
    multiply(part);
  });
  if (sums > 0) add_partials(partials.data<float>(), sums, p.m * p.n, static_cast<float*>(p.c.data));
}

namespace {

template <class Bias, class C>
void store_as(const float* sums, const Bias* bias, C* c, int64_t count, bool accumulate) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = sums[i];
    if (bias != nullptr) sum += static_cast<float>(bias[i]);
    c[i] = C(accumulate ? static_cast<float>(c[i]) + sum : sum);
  }
}

}  // namespace

void store_sums(const Product& p, int64_t row, int64_t column, const float* sums, int64_t count) {
  const auto store = [&](const auto* bias) {
    if (bias != nullptr) bias += column;
    void* const c = p.c.at(row, column).data;
    p.c.dtype == DType::float32 ? store_as(sums, bias, static_cast<float*>(c), count, p.accumulate)
                                : store_as(sums, bias, static_cast<bfloat16*>(c), count, p.accumulate);
  };
  p.bias_dtype == DType::float32 ? store(static_cast<const float*>(p.bias))
                                 : store(static_cast<const bfloat16*>(p.bias));
}

void multiply(const Product& p) {
  const DType dtype = type_of_products(p);
  if (p.a.dtype != dtype || p.b.dtype != dtype) return multiply_in_blocks(p, dtype);
  if (!product_provider().multiply(p)) multiply_plainly(p);
}

void multiply_plainly(const Product& p) {
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

int64_t bytes_to_widen(DType dtype) { return product_provider().has_products(dtype) ? 0 : workspace_bytes; }

void multiply_in_blocks(const Product& p, DType dtype) {
  for (int64_t row = 0; row < p.m; row += block_m) {
    for (int64_t column = 0; column < p.n; column += block_n) {
      run_block(p, dtype, row, column, std::min(block_m, p.m - row), std::min(block_n, p.n - column));
    }
  }
}

}  // namespace alibi::nn
