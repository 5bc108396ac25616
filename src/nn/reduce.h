// Sums over rows. Their order depends only on the shape.
#pragma once

#include "alibi/tensor.h"

namespace alibi::nn {

/// Number of rows that one task sums. There are at most 256 partial sums, which are then added in order.
int64_t rows_per_partial(int64_t rows);

/// out[i] += sum over p of partials[p][i], in the order of p; partials is float32 [parts, n].
void add_partials(const float* partials, int64_t parts, int64_t n, float* out);

/// sums[features] += sum over the rows of x [rows, features]; sums is float32. Rows of x may be strided.
void add_column_sums(const Tensor& x, Tensor& sums);

}  // namespace alibi::nn
