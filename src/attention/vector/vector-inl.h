// Building blocks of the vector kernels, compiled once per instruction set: small matrix products in registers, 2^x,
// and copies of rows between tensors and blocks.

#if defined(ALIBI_ATTENTION_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_VECTOR_INL_H_
#undef ALIBI_ATTENTION_VECTOR_INL_H_
#else
#define ALIBI_ATTENTION_VECTOR_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "alibi/tensor.h"
#include "attention/vector/tasks.h"
#include "core/float16-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, 16>;
using Ints = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Float = hn::Vec<Floats>;

inline constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
/// Rows of a register tile, and vectors per row. Enough registers remain for the operands: AVX-512 and NEON have 32,
/// the others 16. Tiles of 8 x 3 need more than NEON has, which loads the left operand as vectors.
inline constexpr int tile_rows = lanes == 16 ? 8 : 4;
inline constexpr int tile_vectors = HWY_ARCH_ARM_A64 ? 4 : 3;

/// Layout of a product's left operand: element (r, k) is a[r * stride + k] or a[k * stride + r].
enum class Left { rows, columns };

#if HWY_ARCH_ARM_A64
/// sum[r] += scalar(r) * b for the tile_rows rows, where scalar(r) is lane r of *scalars (columns) or lane `step` of
/// scalars[r] (rows).
template <Left left, int step, int N>
HWY_INLINE void add_products(const Float* scalars, const float* HWY_RESTRICT b, Float (&sum)[tile_rows][N]) {
  static_assert(tile_rows == 4 && lanes == 4);
  Float right[N];
  HWY_UNROLL(4)
  for (int n = 0; n < N; ++n) right[n] = hn::Load(Floats(), b + n * lanes);
  const auto add = [&](Float scalar, Float(&row)[N]) HWY_ATTR {
    HWY_UNROLL(4)
    for (int n = 0; n < N; ++n) row[n] = hn::MulAdd(scalar, right[n], row[n]);
  };
  if constexpr (left == Left::columns) {
    add(hn::Broadcast<0>(*scalars), sum[0]);
    add(hn::Broadcast<1>(*scalars), sum[1]);
    add(hn::Broadcast<2>(*scalars), sum[2]);
    add(hn::Broadcast<3>(*scalars), sum[3]);
  } else {
    HWY_UNROLL(4)
    for (int r = 0; r < 4; ++r) add(hn::Broadcast<step>(scalars[r]), sum[r]);
  }
}
#endif

/// One register tile of a * b: tile_rows rows of N vectors. `finish` is called with each vector.
template <Left left, int N, class Finish>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, int64_t a_stride, const float* HWY_RESTRICT b,
                              int64_t b_stride, int64_t depth, const Finish& finish) {
  const Floats f;
  Float sum[tile_rows][N];
  HWY_UNROLL(8)
  for (int r = 0; r < tile_rows; ++r) {
    HWY_UNROLL(4)
    for (int n = 0; n < N; ++n) sum[r][n] = hn::Zero(f);
  }
  int64_t k = 0;
#if HWY_ARCH_ARM_A64
  // An instruction of NEON multiplies by one lane of a register, so one load brings the scalars of 4 rows or 4 steps.
  if constexpr (left == Left::columns) {
    for (; k < depth; ++k) {
      const Float scalars = hn::LoadU(f, a + k * a_stride);
      add_products<left, 0>(&scalars, b + k * b_stride, sum);
    }
  } else {
    for (; k + 4 <= depth; k += 4) {
      Float scalars[4];
      HWY_UNROLL(4)
      for (int r = 0; r < 4; ++r) scalars[r] = hn::LoadU(f, a + r * a_stride + k);
      add_products<left, 0>(scalars, b + k * b_stride, sum);
      add_products<left, 1>(scalars, b + (k + 1) * b_stride, sum);
      add_products<left, 2>(scalars, b + (k + 2) * b_stride, sum);
      add_products<left, 3>(scalars, b + (k + 3) * b_stride, sum);
    }
  }
#endif
  for (; k < depth; ++k) {
    Float right[N];
    HWY_UNROLL(4)
    for (int n = 0; n < N; ++n) right[n] = hn::Load(f, b + k * b_stride + n * lanes);
    HWY_UNROLL(8)
    for (int r = 0; r < tile_rows; ++r) {
      const Float scalar = hn::Set(f, left == Left::rows ? a[r * a_stride + k] : a[k * a_stride + r]);
      HWY_UNROLL(4)
      for (int n = 0; n < N; ++n) sum[r][n] = hn::MulAdd(scalar, right[n], sum[r][n]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < tile_rows; ++r) {
    HWY_UNROLL(4)
    for (int n = 0; n < N; ++n) finish(r, n * lanes, sum[r][n]);
  }
}

/// Prefetches keys and values that will be copied soon into the second-level cache, a row at a time between other work.
/// The rows of one head are not contiguous, so the hardware prefetcher does not find them.
class Prefetcher {
 public:
  void start(const Problem& problem, const Sequence& sequence, int64_t key, int64_t count, int64_t kv_head) {
    const auto size = static_cast<int64_t>(size_of(problem.dtype));
    const Coordinates* const points = problem.points(sequence);
    const KeyRow from = points != nullptr ? KeyRow{sequence.batch, sequence.key_begin} : problem.key_row(sequence, key);
    const auto begin = [&](Stream& stream, const TensorView& rows) {
      const int64_t first = rows.offset(from.batch, from.row, kv_head);
      stream = {static_cast<const char*>(rows.data) + first * size, rows.row_stride * size};
    };
    begin(keys_, problem.k);
    begin(values_, problem.v);
    bytes_ = problem.head_dim * size;
    order_ = points != nullptr ? points->keys.rows.data() + key : nullptr;
    rows_ = points != nullptr ? count : problem.keys_together(sequence, key, count);
  }

  HWY_INLINE void next_row() {
    if (rows_ == 0) return;
    --rows_;
    if (order_ != nullptr) return prefetch(*order_++);
    prefetch(0);
    keys_.at += keys_.step;
    values_.at += values_.step;
  }

 private:
  struct Stream {
    const char* at = nullptr;
    int64_t step = 0;
  };
  HWY_INLINE void prefetch(int64_t row) const {
    constexpr int64_t line = 64;
    for (int64_t i = 0; i < bytes_; i += line) {
      __builtin_prefetch(keys_.at + row * keys_.step + i, 0, 2);
      __builtin_prefetch(values_.at + row * values_.step + i, 0, 2);
    }
  }

  Stream keys_, values_;
  int64_t bytes_ = 0;
  int64_t rows_ = 0;                // rows left to prefetch
  const int32_t* order_ = nullptr;  // the next ones; null: they follow each other
};

/// Calls visit(first vector, number of vectors) for groups of columns as wide as a register tile. `narrow` groups can
/// leave out more keys that are not seen.
template <class Visit>
HWY_INLINE void for_groups(int64_t columns, bool narrow, const Visit& visit) {
  const int64_t vectors = (columns + lanes - 1) / lanes;
  for (int64_t n = 0; n < vectors;) {
    const int64_t left_over = vectors - n;
    constexpr int64_t widest = tile_vectors;
    // Two groups of 2 are faster than 3 and 1.
    const int64_t width = narrow                    ? HWY_MIN(left_over, 2)
                          : left_over == widest + 1 ? widest - 1
                                                    : HWY_MIN(left_over, widest);
    visit(n, width);
    n += width;
  }
}

/// Computes a * b for a number of columns (rounded up to whole vectors); finish(row, column, values) stores the result.
/// `part` gives the rows that a group of columns needs (rounded up to whole tiles, for which all operands have room),
/// and the part of the inner dimension that its tiles need. Each tile also prefetches one row of the next keys and
/// values.
template <Left left, class Part, class Prefetch, class Finish>
HWY_INLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t columns,
                         const Part& part, Prefetch& prefetcher, const Finish& finish) {
  for_groups(columns, part.narrow(), [&](int64_t n, int64_t width) HWY_ATTR {
    const Range rows = part.rows_of(n * lanes, width * lanes);
    for (int64_t r = rows.begin; r < rows.end; r += tile_rows) {
      const Range depth = part.depth_of(r, n * lanes, width * lanes);
      const float* a_tile = a + (left == Left::rows ? r * a_stride + depth.begin : depth.begin * a_stride + r);
      const float* b_tile = b + depth.begin * b_stride + n * lanes;
      const auto at = finish.at(r, n * lanes);
      prefetcher.next_row();
      if (width == tile_vectors) {
        multiply_tile<left, tile_vectors>(a_tile, a_stride, b_tile, b_stride, depth.size(), at);
      } else if (width == 3) {
        multiply_tile<left, 3>(a_tile, a_stride, b_tile, b_stride, depth.size(), at);
      } else if (width == 2) {
        multiply_tile<left, 2>(a_tile, a_stride, b_tile, b_stride, depth.size(), at);
      } else {
        multiply_tile<left, 1>(a_tile, a_stride, b_tile, b_stride, depth.size(), at);
      }
    }
  });
}

/// c = a * b.
struct Store {
  float* c;
  int64_t stride;
  HWY_INLINE Store at(int64_t row, int64_t column) const { return {c + row * stride + column, stride}; }
  HWY_INLINE void operator()(int64_t row, int64_t column, Float value) const {
    hn::Store(value, Floats(), c + row * stride + column);
  }
};

/// c += a * b.
struct Add {
  float* c;
  int64_t stride;
  HWY_INLINE Add at(int64_t row, int64_t column) const { return {c + row * stride + column, stride}; }
  HWY_INLINE void operator()(int64_t row, int64_t column, Float value) const {
    float* to = c + row * stride + column;
    hn::Store(hn::Add(hn::Load(Floats(), to), value), Floats(), to);
  }
};

/// 2^x for x <= 1 with an error of 1.5 units in the last place. It is 0 below -125.5, where results would be denormal,
/// and NaN for NaN. Coefficients: interpolation of (2^x - 1) / x at the Chebyshev nodes of [-1/2, 1/2], relative error
/// 9e-9.
HWY_INLINE Float exp2_of(Float x) {
  const Floats f;
  const Words w;
  const Float magic = hn::Set(f, 0x1.8p23f);  // adding it rounds to an integer in the low bits
  const Float shifted = hn::Add(x, magic);
  const Float r = hn::Sub(x, hn::Sub(shifted, magic));
  Float p = hn::Set(f, 0x1.44138ap-13f);
  p = hn::MulAdd(p, r, hn::Set(f, 0x1.5f089p-10f));
  p = hn::MulAdd(p, r, hn::Set(f, 0x1.3b2a54p-7f));
  p = hn::MulAdd(p, r, hn::Set(f, 0x1.c6af6cp-5f));
  p = hn::MulAdd(p, r, hn::Set(f, 0x1.ebfbep-3f));
  p = hn::MulAdd(p, r, hn::Set(f, 0x1.62e43p-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::BitCast(w, shifted), hn::Set(w, 127u)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(f, -125.5f)), hn::Mul(p, hn::BitCast(f, power)));
}

inline bool all_finite(const float* values, int64_t count) {
  const Floats f;
  Float sum = hn::Zero(f);
  for (int64_t i = 0; i < count; i += lanes) sum = hn::MulAdd(hn::Zero(f), hn::Load(f, values + i), sum);
  return hn::AllTrue(f, hn::Eq(sum, hn::Zero(f)));  // 0 times infinity or NaN is NaN
}

/// out[i][lane] += sum over y of block[y][i] * weights[y][lane], where a weight of zero gives zero even with infinity
/// or NaN. Used for masked tiles whose keys or values are not all finite, which is rare and slow.
inline void add_carefully(const float* block, int64_t stride, const float* weights, int64_t count, int64_t head_dim,
                          int64_t columns, float* out) {
  for (int64_t i = 0; i < head_dim; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      float sum = 0;
      for (int64_t y = 0; y < count; ++y) {
        const float weight = weights[y * query_rows + c];
        if (weight != 0) sum += weight * block[y * stride + i];
      }
      out[i * query_rows + c] += sum;
    }
  }
}

/// Loads head_dim values of any data type as float32, followed by zeros up to `padded` (a multiple of 16).
template <class T>
HWY_INLINE void load_row(const T* from, int64_t size, float* to, int64_t padded) {
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(core::HWY_NAMESPACE::load(Floats(), from + i), Floats(), to + i);
  for (; i < size; ++i) to[i] = static_cast<float>(from[i]);
  for (; i < padded; ++i) to[i] = 0;
}

/// Loads rows [row, row + count) of a head as a float32 block with `stride` floats per row.
inline void load_block(const Problem& problem, const TensorView& from, int64_t batch, int64_t row, int64_t count,
                       int64_t head, float* to, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    if (problem.dtype == DType::float32) {
      load_row(from.at<const float>(batch, row + i, head), problem.head_dim, to + i * stride, stride);
    } else if (problem.dtype == DType::float16) {
      load_row(from.at<const float16>(batch, row + i, head), problem.head_dim, to + i * stride, stride);
    } else {
      load_row(from.at<const bfloat16>(batch, row + i, head), problem.head_dim, to + i * stride, stride);
    }
  }
}

/// Loads rows [begin, begin + count) of an order; without one (null), those of the tensor. They are counted from row
/// `first` of the tensor.
inline void load_ordered(const Problem& problem, const TensorView& from, int64_t batch, int64_t first,
                         const TokenOrder* order, int64_t begin, int64_t count, int64_t head, float* to,
                         int64_t stride) {
  if (order == nullptr) return load_block(problem, from, batch, first + begin, count, head, to, stride);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = first + order->rows[static_cast<size_t>(begin + i)];
    load_block(problem, from, batch, row, 1, head, to + i * stride, stride);
  }
}

template <class T>
HWY_INLINE void store_row(const float* from, float scale, int64_t size, T* to) {
  const Floats f;
  int64_t i = 0;
  if constexpr (!std::is_same_v<T, float16>) {
    for (; i + lanes <= size; i += lanes) {
      core::HWY_NAMESPACE::store(hn::Mul(hn::Set(f, scale), hn::LoadU(f, from + i)), f, to + i);
    }
  }
  for (; i < size; ++i) to[i] = T(scale * from[i]);
}

/// Stores a row in the tensor's data type, with rounding. The values may be scaled.
inline void store_row(const Problem& problem, const float* from, float scale, const TensorView& to, int64_t batch,
                      int64_t row, int64_t head) {
  if (problem.dtype == DType::float32) {
    store_row(from, scale, problem.head_dim, to.at<float>(batch, row, head));
  } else if (problem.dtype == DType::float16) {
    store_row(from, scale, problem.head_dim, to.at<float16>(batch, row, head));
  } else {
    store_row(from, scale, problem.head_dim, to.at<bfloat16>(batch, row, head));
  }
}

/// to[c][r] = from[r][c]; rows and columns are multiples of 4.
inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                      int64_t columns) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
#else
  const hn::FixedTag<float, 4> four;
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t c = 0; c < columns; c += 4) {
      const float* at = from + r * from_stride + c;
      const auto r0 = hn::Load(four, at), r1 = hn::Load(four, at + from_stride);
      const auto r2 = hn::Load(four, at + 2 * from_stride), r3 = hn::Load(four, at + 3 * from_stride);
      const auto even_low = hn::InterleaveLower(four, r0, r2), odd_low = hn::InterleaveLower(four, r1, r3);
      const auto even_high = hn::InterleaveUpper(four, r0, r2), odd_high = hn::InterleaveUpper(four, r1, r3);
      float* out = to + c * to_stride + r;
      hn::Store(hn::InterleaveLower(four, even_low, odd_low), four, out);
      hn::Store(hn::InterleaveUpper(four, even_low, odd_low), four, out + to_stride);
      hn::Store(hn::InterleaveLower(four, even_high, odd_high), four, out + 2 * to_stride);
      hn::Store(hn::InterleaveUpper(four, even_high, odd_high), four, out + 3 * to_stride);
    }
  }
#endif
}

/// Loads a block of queries as [head_dim][query_rows], so that each lane is a query. Lanes beyond the block's rows are
/// zeros. `rows` ([query_rows][stride]) receives the rows untransposed.
inline void load_queries(const Problem& problem, const TensorView& from, const Sequence& sequence,
                         const QueryBlock& block, float* rows, int64_t stride, float* transposed) {
  const Coordinates* const points = problem.points(sequence);
  load_ordered(problem, from, sequence.batch, sequence.query_begin, points != nullptr ? &points->queries : nullptr,
               block.row, block.rows, block.head, rows, stride);
  const int64_t padded = round_up(block.rows, lanes);
  std::memset(rows + block.rows * stride, 0, static_cast<size_t>((padded - block.rows) * stride) * sizeof(float));
  transpose(rows, stride, transposed, query_rows, padded, round_up(problem.head_dim, 4));
}

/// Loads `count` keys or values, followed by zeros up to a whole register tile, for which `to` has room.
inline void load_keys(const Problem& problem, const TensorView& from, const Sequence& sequence, int64_t key,
                      int64_t count, int64_t kv_head, float* to, int64_t stride) {
  const Coordinates* const points = problem.points(sequence);
  if (points != nullptr) {
    load_ordered(problem, from, sequence.batch, sequence.key_begin, &points->keys, key, count, kv_head, to, stride);
  }
  for (int64_t i = points != nullptr ? count : 0; i < count;) {
    const KeyRow at = problem.key_row(sequence, key + i);
    const int64_t together = problem.keys_together(sequence, key + i, count - i);
    load_block(problem, from, at.batch, at.row, together, kv_head, to + i * stride, stride);
    i += together;
  }
  const int64_t padded = round_up(count, tile_rows);
  std::memset(to + count * stride, 0, static_cast<size_t>((padded - count) * stride) * sizeof(float));
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
