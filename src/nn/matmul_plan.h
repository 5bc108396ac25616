// How a matrix product is cut into tasks: by its shape alone, so that its bits do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::nn {

/// c [m, n] = a [m, k] * b [k, n]. An operand is `inner_first` if neighbours along the inner axis k are neighbours in
/// memory, as in x and weight of x * weight'.
struct ProductShape {
  int64_t m, n, k;
  bool a_inner_first = true, b_inner_first = true;
  bool may_split_k = false;

  bool operator==(const ProductShape&) const = default;
};

/// Tasks are tiles [tile_m, tile_n] of c, each summed over pieces of tile_k of the inner axis: the first piece into c,
/// the others into sums of their own, which are added to c in order. Operands to be turned are copied before, so that
/// they lie inner axis first.
struct MatmulPlan {
  int64_t tile_m, tile_n, tile_k;
  int64_t tiles_m, tiles_n, pieces_k;
  bool transpose_a = false, transpose_b = false;

  int64_t tasks() const { return tiles_m * tiles_n * pieces_k; }
  /// Elements of the turned operands and of the sums of the pieces after the first, while the product runs.
  int64_t elements_of_copies(const ProductShape& shape) const {
    return (transpose_a ? shape.m * shape.k : 0) + (transpose_b ? shape.k * shape.n : 0) +
           (pieces_k - 1) * shape.m * shape.n;
  }
};

/// What oneDNN's products are like on an instruction set.
enum class ProductKernels {
  any_layout,   // all layouts of the operands run alike (AVX-512 and better)
  inner_first,  // other layouts are slow in small tiles (AVX2)
};
ProductKernels product_kernels(DType dtype);

/// The plan of the least modelled time on a few threads, with some regard for many. Remembers what it found.
MatmulPlan plan_matmul(const ProductShape& shape, ProductKernels kernels);

}  // namespace alibi::nn
