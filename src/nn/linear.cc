#include "nn/linear.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/parallel.h"
#include "nn/matmul_plan.h"
#include "nn/onednn.h"
#include "nn/operators.h"
#include "nn/product_observer.h"
#include "nn/reduce.h"
#include "nn/shape.h"
#include "nn/skinny_gemm.h"

namespace alibi::nn {
namespace {

Matrix matrix_of(const char* operation, const char* name, const Tensor& tensor, bool transposed) {
  check(tensor.axes() == 2 && is_floating(tensor.dtype()), "[{}] {} is {} {}, expected a floating-point matrix",
        operation, name, name_of(tensor.dtype()), to_string(tensor.shape()));
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  check((columns <= 1 || tensor.stride(1) == 1) && (rows <= 1 || tensor.stride(0) >= columns),
        "[{}] {} {} has strides {}, expected a unit inner stride and rows that do not overlap", operation, name,
        to_string(tensor.shape()), to_string(tensor.strides()));
  return {tensor.raw(), std::max<int64_t>(rows > 1 ? tensor.stride(0) : columns, 1), transposed, tensor.dtype()};
}

/// All axes but the last as rows.
Tensor as_matrix(const char* operation, const char* name, const Tensor& tensor) {
  if (tensor.axes() == 2) return tensor;
  const Rows shape = rows_of(operation, name, tensor);
  return tensor.reshape({shape.rows, shape.features});
}

/// The inner axis is empty: c = bias.
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

/// An operand whose inner axis lies first, where the plan asks for it: a copy, made in tasks.
struct Turned {
  Turned(Matrix& operand, bool wanted, int64_t outer, int64_t inner, bool is_b)
      : from(operand), lines(outer), k(inner) {
    if (!wanted) return;
    copy = Tensor::empty({lines, k});
    tasks = core::ceil_div(lines, lines_of_task);
    operand = {copy.raw(), k, is_b, DType::float32};
  }

  void run(int64_t task) const {
    const int64_t line = task * lines_of_task;
    transpose(static_cast<const float*>(from.data) + line, from.stride, k, std::min(lines_of_task, lines - line),
              copy.data<float>() + line * k);
  }

  static constexpr int64_t lines_of_task = 128;
  Matrix from;
  int64_t lines, k, tasks = 0;
  Tensor copy;
};

/// The product cut into tasks by its shape, each task one single-threaded oneDNN primitive.
void compute_in_tasks(Product p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return fill_without_products(p);
  if (is_skinny(p)) return skinny_gemm(p);
  const MatmulPlan plan = plan_matmul(shape_of(p), product_kernels(p.a.dtype));
  const Turned a(p.a, plan.transpose_a, p.m, p.k, false), b(p.b, plan.transpose_b, p.n, p.k, true);
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
    run(part);
  });
  if (sums > 0) add_partials(partials.data<float>(), sums, p.m * p.n, static_cast<float*>(p.c.data));
}

Product product_of(const char* operation, const char* a_name, const Tensor& a, bool transpose_a, const char* b_name,
                   const Tensor& b, bool transpose_b, const char* c_name, const Tensor& c, bool accumulate) {
  Product p{};
  p.a = matrix_of(operation, a_name, a, transpose_a);
  p.b = matrix_of(operation, b_name, b, transpose_b);
  p.c = matrix_of(operation, c_name, c, false);
  p.m = a.size(transpose_a ? 1 : 0);
  p.k = a.size(transpose_a ? 0 : 1);
  p.n = b.size(transpose_b ? 0 : 1);
  p.accumulate = accumulate;
  const int64_t b_inner = b.size(transpose_b ? 1 : 0);
  check(b_inner == p.k, "[{}] {} {} and {} {} differ in the inner axis ({} and {})", operation, a_name,
        to_string(a.shape()), b_name, to_string(b.shape()), p.k, b_inner);
  check(c.size(0) == p.m && c.size(1) == p.n, "[{}] {} is {}, expected [{}, {}]", operation, c_name,
        to_string(c.shape()), p.m, p.n);
  check(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::float32),
        "[{}] {} is {}, {} is {}, {} is {}; expected one type, or a float32 result", operation, a_name,
        name_of(a.dtype()), b_name, name_of(b.dtype()), c_name, name_of(c.dtype()));
  return p;
}

}  // namespace

void run_in_tasks(const Product& product) {
  const ProductObserver* const observer = product_observer();
  if (observer == nullptr) return compute_in_tasks(product);
  const auto begin = std::chrono::steady_clock::now();
  compute_in_tasks(product);
  (*observer)(product, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, Tensor& c, bool accumulate) {
  if (ran_elsewhere(&Operators::matmul, "matmul", a, transpose_a, b, transpose_b, c, accumulate)) return;
  run_in_tasks(product_of("matmul", "a", a, transpose_a, "b", b, transpose_b, "c", c, accumulate));
}

void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y) {
  if (ran_elsewhere(&Operators::linear, "linear", x, weight, bias, y)) return;
  const Tensor rows = as_matrix("linear", "x", x), out = as_matrix("linear", "y", y);
  Product p = product_of("linear", "x", rows, false, "weight", weight, true, "y", out, false);
  if (bias != nullptr) {
    check(is_floating(bias->dtype()), "[linear] bias is {}, expected floating point", name_of(bias->dtype()));
    check_vector("linear", "bias", *bias, p.n, bias->dtype());
    p.bias = bias->raw();
    p.bias_dtype = bias->dtype();
  }
  run_in_tasks(p);
}

void linear_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, Tensor* dx, Tensor* dweight,
                     Tensor* dbias) {
  if (ran_elsewhere(&Operators::linear_backward, "linear_backward", dy, x, weight, dx, dweight, dbias)) return;
  const char* operation = "linear_backward";
  const Tensor dout = as_matrix(operation, "dy", dy);
  const Tensor rows = as_matrix(operation, "x", x);
  check(dout.size(0) == rows.size(0) && weight.axes() == 2 && weight.size(0) == dout.size(1) &&
            weight.size(1) == rows.size(1),
        "[{}] dy is {}, x is {}, weight is {}; expected [rows, out], [rows, in], [out, in]", operation,
        to_string(dy.shape()), to_string(x.shape()), to_string(weight.shape()));
  if (dx != nullptr) {  // y = x * weight'  ->  dx = dy * weight
    const Tensor din = as_matrix(operation, "dx", *dx);
    run_in_tasks(product_of(operation, "dy", dout, false, "weight", weight, false, "dx", din, false));
  }
  if (dweight != nullptr) {  // dweight += dy' * x
    run_in_tasks(product_of(operation, "dy", dout, true, "x", rows, false, "dweight", *dweight, true));
  }
  if (dbias != nullptr) add_column_sums(dout, *dbias);
}

}  // namespace alibi::nn
