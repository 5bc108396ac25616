#include "nn/linear.h"

#include <algorithm>

#include "core/check.h"
#include "core/parallel.h"
#include "nn/products.h"
#include "nn/reduce.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

Matrix matrix_of(const char* operation, const char* name, const Tensor& tensor, bool transposed, bool is_b = false) {
  const bool is_weight = is_b && transposed && is_weight_type(tensor.dtype());
  check(tensor.axes() == 2 && (is_floating(tensor.dtype()) || is_weight),
        "[{}] {} is {} {}, expected a floating-point matrix", operation, name, name_of(tensor.dtype()),
        to_string(tensor.shape()));
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  check((columns <= 1 || tensor.stride(1) == 1) && (rows <= 1 || tensor.stride(0) >= columns),
        "[{}] {} {} has strides {}, expected a unit inner stride and rows that do not overlap", operation, name,
        to_string(tensor.shape()), to_string(tensor.strides()));
  return {tensor.raw(), std::max<int64_t>(rows > 1 ? tensor.stride(0) : columns, 1), transposed, tensor.dtype()};
}

/// All axes except the last one as rows.
Tensor as_matrix(const char* operation, const char* name, const Tensor& tensor) {
  if (tensor.axes() == 2) return tensor;
  const Rows shape = rows_of(operation, name, tensor);
  return tensor.reshape({shape.rows, shape.features});
}

Product product_of(const char* operation, const char* a_name, const Tensor& a, bool transpose_a, const char* b_name,
                   const Tensor& b, bool transpose_b, const char* c_name, const Tensor& c, bool accumulate) {
  Product p{};
  p.a = matrix_of(operation, a_name, a, transpose_a);
  p.b = matrix_of(operation, b_name, b, transpose_b, true);
  p.c = matrix_of(operation, c_name, c, false);
  p.m = a.size(transpose_a ? 1 : 0);
  p.k = a.size(transpose_a ? 0 : 1);
  p.n = b.size(transpose_b ? 0 : 1);
  p.accumulate = accumulate;
  const int64_t b_inner = b.size(transpose_b ? 1 : 0) * numbers_in(b.dtype());
  check(b_inner == p.k, "[{}] {} {} and {} {} differ in the inner axis ({} and {})", operation, a_name,
        to_string(a.shape()), b_name, to_string(b.shape()), p.k, b_inner);
  check(c.size(0) == p.m && c.size(1) == p.n, "[{}] {} is {}, expected [{}, {}]", operation, c_name,
        to_string(c.shape()), p.m, p.n);
  check((a.dtype() == b.dtype() || transpose_b) && (c.dtype() == a.dtype() || c.dtype() == DType::float32),
        "[{}] {} is {}, {} is {}, {} is {}; expected one type, or a float32 result", operation, a_name,
        name_of(a.dtype()), b_name, name_of(b.dtype()), c_name, name_of(c.dtype()));
  return p;
}

}  // namespace

void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, Tensor& c, bool accumulate) {
  multiply_in_tasks(product_of("matmul", "a", a, transpose_a, "b", b, transpose_b, "c", c, accumulate));
}

void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y) {
  const Tensor rows = as_matrix("linear", "x", x), out = as_matrix("linear", "y", y);
  Product p = product_of("linear", "x", rows, false, "weight", weight, true, "y", out, false);
  if (bias != nullptr) {
    check(is_floating(bias->dtype()), "[linear] bias is {}, expected floating point", name_of(bias->dtype()));
    check_vector("linear", "bias", *bias, p.n, bias->dtype());
    p.bias = bias->raw();
    p.bias_dtype = bias->dtype();
  }
  multiply_in_tasks(p);
}

void linear_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, Tensor* dx, Tensor* dweight,
                     Tensor* dbias) {
  const char* operation = "linear_backward";
  const Tensor dout = as_matrix(operation, "dy", dy);
  const Tensor rows = as_matrix(operation, "x", x);
  check(dout.size(0) == rows.size(0) && weight.axes() == 2 && weight.size(0) == dout.size(1) &&
            weight.size(1) == rows.size(1),
        "[{}] dy is {}, x is {}, weight is {}; expected [rows, out], [rows, in], [out, in]", operation,
        to_string(dy.shape()), to_string(x.shape()), to_string(weight.shape()));
  if (dx != nullptr) {  // y = x * weight'  ->  dx = dy * weight
    const Tensor din = as_matrix(operation, "dx", *dx);
    multiply_in_tasks(product_of(operation, "dy", dout, false, "weight", weight, false, "dx", din, false));
  }
  if (dweight != nullptr) {  // dweight += dy' * x
    multiply_in_tasks(product_of(operation, "dy", dout, true, "x", rows, false, "dweight", *dweight, true));
  }
  if (dbias != nullptr) add_column_sums(dout, *dbias);
}

}  // namespace alibi::nn
