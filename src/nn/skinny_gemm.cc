#include <algorithm>
#include <type_traits>
#include <vector>

#include "nn/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/skinny_gemm.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// Number of rows of b that are read together. The next rows lie directly after them in memory.
constexpr int together = 4;
/// Rows of a that are multiplied at once: with 16 vector registers the sums of four would not stay in registers.
constexpr int rows_at_once = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 3 : 4;

/// Reads a part of the next B rows ahead in the order of memory, because the hardware prefetcher stops at page
/// boundaries: as much as `count` elements from `at` on of these rows. The addresses may lie behind the last row.
template <int B, class T>
HWY_INLINE void read_ahead(const T* b, int64_t stride, int64_t at, int64_t count) {
  const auto first = reinterpret_cast<uintptr_t>(b) + static_cast<uintptr_t>(B * (stride + at)) * sizeof(T);
  for (int64_t byte = 0; byte < B * count * static_cast<int64_t>(sizeof(T)); byte += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<uintptr_t>(byte)), 0, 2);
  }
}

/// c[i][j] = sum over k of a[i][k] b[j][k], for R rows of a and B rows of b.
template <int R, int B, class T>
requires(!is_block<T>) HWY_INLINE
    void dots(const float* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t k, float (*sums)[together]) {
  V sum[R][B];
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < B; ++j) sum[i][j] = zero();
  }
  each_vector(k, [&](int64_t at, auto lanes) HWY_ATTR {
    read_ahead<B>(b, b_stride, at, block_lanes);
    V x[R];
    HWY_UNROLL(4)
    for (int i = 0; i < R; ++i) x[i] = load(a + i * a_stride + at, lanes);
    HWY_UNROLL(4)
    for (int j = 0; j < B; ++j) {
      const V w = load(b + j * b_stride + at, lanes);
      HWY_UNROLL(4)
      for (int i = 0; i < R; ++i) sum[i][j] = hn::MulAdd(x[i], w, sum[i][j]);
    }
  });
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < B; ++j) sums[i][j] = nn::HWY_NAMESPACE::sum(sum[i][j]);
  }
}

/// The same for rows of blocks; b_stride counts blocks. The sums have the bits of those of the widened rows.
template <int R, int B, class Block>
requires is_block<Block> HWY_INLINE void dots(const float* a, int64_t a_stride, const Block* b, int64_t b_stride,
                                              int64_t k, float (*sums)[together]) {
  V sum[R][B];
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < B; ++j) sum[i][j] = zero();
  }
  for (int64_t at = 0; at < k; at += Block::size, a += Block::size) {
    read_ahead<B>(b, b_stride, at / Block::size, 1);
    const auto block = [&](int j) -> const Block& { return b[j * b_stride + at / Block::size]; };
    const auto add = [&](int j) HWY_ATTR {
      return [&, j](int64_t n, V w) HWY_ATTR {
        HWY_UNROLL(4)
        for (int i = 0; i < R; ++i) sum[i][j] = hn::MulAdd(load(a + i * a_stride + n, Whole()), w, sum[i][j]);
      };
    };
    if constexpr (std::is_same_v<Block, core::q4_k_block> && B == together) {
      // A part of each row after the other: the additions to one sum wait for each other, those to several do not.
      const GroupScales scales[] = {GroupScales(block(0)), GroupScales(block(1)), GroupScales(block(2)),
                                    GroupScales(block(3))};
      for (int64_t group = 0; group < 8; group += 2) {
        HWY_UNROLL(4)
        for (int j = 0; j < B; ++j) each_weight_of(block(j), scales[j], group, add(j));
      }
    } else {
      HWY_UNROLL(4)
      for (int j = 0; j < B; ++j) each_weight(block(j), add(j));
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < R; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < B; ++j) sums[i][j] = nn::HWY_NAMESPACE::sum(sum[i][j]);
  }
}

/// Rows of b in memory, whose elements may be blocks.
template <class T>
struct StoredRows {
  const T* data;
  int64_t stride;
};

/// R rows of c, and `count` columns of them: `together`, or one.
template <int R, class T>
void part_of(const Product& p, const StoredRows<T>& b, int64_t row, int64_t column, int64_t count) {
  const float* const a = static_cast<const float*>(p.a.data) + row * p.a.stride;
  float sums[R][together];
  count == together ? dots<R, together>(a, p.a.stride, b.data, b.stride, p.k, sums)
                    : dots<R, 1>(a, p.a.stride, b.data, b.stride, p.k, sums);
  for (int i = 0; i < R; ++i) store_sums(p, row + i, column, sums[i], count);
}

template <class T>
void rows_of_c(const Product& p, const StoredRows<T>& b, int64_t row, int64_t row_end, int64_t column, int64_t count) {
  for (; row + rows_at_once <= row_end; row += rows_at_once) part_of<rows_at_once, T>(p, b, row, column, count);
  if (row_end - row == 3) part_of<3, T>(p, b, row, column, count);
  if (row_end - row == 2) part_of<2, T>(p, b, row, column, count);
  if (row_end - row == 1) part_of<1, T>(p, b, row, column, count);
}

/// to = the row of b in float32.
template <class Block>
void widen(const Block* row, const StoredRows<Block>& b, int64_t k, float* to) {
  for (int64_t at = 0; at < k; at += Block::size, ++row) {
    read_ahead<1>(row + (together - 1) * b.stride, b.stride, 0, 1);
    widen_block(*row, to + at);
  }
}

/// Columns [begin, end) of c. Blocks are widened once for more rows of a than are multiplied at once.
template <class T>
void rows_of_type(const Product& p, const T* first, int64_t begin, int64_t end) {
  // These rows of a stay in the second-level cache beside the task's rows of b.
  constexpr int64_t bytes_of_rows = 1 << 18;
  const int64_t rows = std::max<int64_t>(1, bytes_of_rows / (4 * p.k * static_cast<int64_t>(sizeof(float)))) * 4;
  std::vector<float> wide(is_block<T> && p.m > rows_at_once ? static_cast<size_t>(together * p.k) : 0);
  for (int64_t row = 0; row < p.m; row += rows) {
    const int64_t row_end = std::min(row + rows, p.m);
    for (int64_t column = begin, count = 0; column < end; column += count) {
      count = end - column >= together ? together : 1;
      const StoredRows<T> b{first + column * p.b.stride, p.b.stride};
      if constexpr (is_block<T>) {
        if (!wide.empty()) {
          for (int64_t n = 0; n < count; ++n) widen(b.data + n * b.stride, b, p.k, wide.data() + n * p.k);
          rows_of_c<float>(p, {wide.data(), p.k}, row, row_end, column, count);
          continue;
        }
      }
      rows_of_c<T>(p, b, row, row_end, column, count);
    }
  }
}

/// Columns [begin, end) of c; a is float32.
void multiply_columns(const Product& p, int64_t begin, int64_t end) {
  core::as_type(p.b.data, p.b.dtype, [&](const auto* data) { rows_of_type(p, data, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/weights.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(multiply_columns);

thread_local int independent_rows = 0;  // number of IndependentRows of this thread

/// The rows of a in float32.
Tensor widened_rows(const Product& p) {
  Tensor rows = Tensor::empty({p.m, p.k});
  for (int64_t row = 0; row < p.m; ++row) {
    widen_row(p.a.at(row, 0).data, p.a.dtype, p.k, rows.data<float>() + row * p.k);
  }
  return rows;
}

}  // namespace

IndependentRows::IndependentRows(bool wanted) : count_(wanted ? 1 : 0) { independent_rows += count_; }
IndependentRows::~IndependentRows() { independent_rows -= count_; }
bool IndependentRows::wanted() { return independent_rows > 0; }

bool is_skinny(const Product& p) {
  // Larger products of weights of another type than a would first convert them to float32.
  const int64_t max_rows = IndependentRows::wanted() ? p.m : p.a.dtype == p.b.dtype ? 8 : 32;
  return p.m > 0 && p.m <= max_rows && p.n > 0 && p.k > 0 && !p.a.transposed && p.b.transposed;
}

void skinny_gemm(const Product& product) {
  Product p = product;
  Tensor wide;
  if (p.a.dtype != DType::float32) {
    wide = widened_rows(p);
    p.a = {wide.raw(), p.k, false, DType::float32};
  }
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(multiply_columns);
  // A task begins with rows that nothing has prefetched, so few tasks are better, but at least four for each thread.
  const int64_t row_bytes = bytes_of_row(p.b.dtype, p.k);
  const int64_t task_bytes = std::clamp<int64_t>(p.n * row_bytes / (4 * threads()), 1 << 17, 1 << 20);
  const int64_t rows = std::max<int64_t>(1, task_bytes / row_bytes / 4) * 4;
  core::parallel_ranges(p.n, rows, [&](int64_t begin, int64_t end) { kernel(p, begin, end); });
}

}  // namespace alibi::nn
#endif
