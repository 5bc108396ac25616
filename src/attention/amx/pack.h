// Copies blocks of up to 32 rows of a bfloat16 tensor into the tile layouts of tiles.h and back. Elements of a tile
// beyond the rows or columns are zero. They are neither read from the tensor nor written to it.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace alibi::kernels::amx {

/// Rows of one head. T is uint16_t or const uint16_t.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t stride = 0;   ///< elements from one row to the next
  int64_t rows = 0;     ///< <= 32
  int64_t columns = 0;  ///< head_dim
};
using Source = HeadRows<const uint16_t>;
using Target = HeadRows<uint16_t>;

/// Number of steps of 32 columns for head_dim.
constexpr int64_t steps_of(int64_t head_dim) { return (head_dim + 31) / 32; }

/// At most 32 rows from `row` on of a tensor that has `rows` rows left.
inline Source source_at(const TensorView& tensor, int64_t batch, int64_t row, int64_t head, int64_t rows,
                        int64_t columns) {
  return {tensor.at<const uint16_t>(batch, row, head), tensor.row_stride, rows < 32 ? rows : 32, columns};
}
inline Target target_at(const TensorView& tensor, int64_t batch, int64_t row, int64_t head, int64_t rows,
                        int64_t columns) {
  return {tensor.at<uint16_t>(batch, row, head), tensor.row_stride, rows < 32 ? rows : 32, columns};
}

/// Prefetches rows that are read or written soon. The hardware prefetcher does not recognize their stride.
void prefetch(const Source& source);
void prefetch(const Target& target);

/// Each fills steps * 1024 values.
void pack_rows(const Source& source, uint16_t* tiles);
void pack_columns(const Source& source, uint16_t* tiles);
void pack_pairs(const Source& source, uint16_t* tiles);
/// `stride` from step to step.
void pack_transposed(const Source& source, uint16_t* tiles, int64_t stride = 1024);

/// Rounds factor * a float32 block [step][row half][column half][16][16] to the rows.
void unpack_rows(const float* tiles, float factor, const Target& target);

/// The order of the rows in a transposed block: natural, or that of the backward pass's 16-bit interleaving
/// instructions (row 8 l + 4 half + i is in column 4 l + i of the half).
enum class RowOrder : uint8_t { natural, interleaved };
/// Rounds factors[row] * the transpose of a float32 block [step][column half][row half][16 columns][16 rows].
void unpack_transposed(const float* tiles, const float* factors, RowOrder order, const Target& target);

/// norms[row] = an upper bound of the Euclidean norm, for 32 rows. Returns the largest bound.
float row_norms(const Source& source, float* norms);
/// sums[row] = a[row] . b[row], for 32 rows.
void row_products(const Source& a, const Source& b, float* sums);
/// The largest magnitude, or infinity if any value is infinite or NaN.
float largest(const Source& source);

}  // namespace alibi::kernels::amx
