// The division of a matrix product into tasks. It depends only on the shape, so the bits do not depend on the number of
// threads.
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

/// Tasks are tiles [tile_m, tile_n] of c, each summed over pieces of tile_k of the inner axis. The first piece is
/// summed into c. The other pieces have their own sums, which are added to c in order. Operands to transpose are copied
/// first, so that they are inner axis first.
struct MatmulPlan {
  int64_t tile_m, tile_n, tile_k;
  int64_t tiles_m, tiles_n, pieces_k;
  bool transpose_a = false, transpose_b = false;

  int64_t tasks() const { return tiles_m * tiles_n * pieces_k; }
  /// Number of elements of the transposed operands and of the sums of further pieces during the product.
  int64_t elements_of_copies(const ProductShape& shape) const {
    return (transpose_a ? shape.m * shape.k : 0) + (transpose_b ? shape.k * shape.n : 0) +
           (pieces_k - 1) * shape.m * shape.n;
  }
};

/// Properties of the provider's products on this CPU (products.h).
enum class ProductKernels {
  any_layout,   // equally fast for all layouts of the operands (AVX-512 and better)
  inner_first,  // other layouts are slow in small tiles (AVX2)
};
ProductKernels product_kernels(DType dtype);

/// The plan with the shortest predicted time on a few threads that also has enough tasks for many. Results are cached.
MatmulPlan plan_matmul(const ProductShape& shape, ProductKernels kernels);

}  // namespace alibi::nn
