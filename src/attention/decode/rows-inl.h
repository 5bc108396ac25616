// Products of queries with rows of a cache, and weighted sums of its rows: the inner loops of kernel.cc.
#if defined(ALIBI_ATTENTION_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_DECODE_ROWS_INL_H_
#undef ALIBI_ATTENTION_DECODE_ROWS_INL_H_
#else
#define ALIBI_ATTENTION_DECODE_ROWS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "attention/decode/kv_cache_norms.h"
#include "attention/vector/vector-inl.h"
#include "core/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// Number of keys whose products with a query are accumulated together.
inline constexpr int key_tile = 4;
/// Scores or weights of a query with the keys of a block.
using Scores = float[cache_block];

/// Bytes of `numbers` numbers of a row. For q8_0 the block that contains the last of them may be cut off.
template <class T>
constexpr int64_t bytes_of(int64_t numbers) {
  if constexpr (std::is_same_v<T, q8_block>) return numbers / q8_block::size * static_cast<int64_t>(sizeof(T));
  return numbers * static_cast<int64_t>(sizeof(T));
}
/// The row that lies `rows` rows after this one.
template <class T>
HWY_INLINE const T* row_after(const T* row, int64_t rows, int64_t stride) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(row) + rows * bytes_of<T>(stride));
}

/// Prefetches `bytes` bytes, unless `at` is null. Keys and values are two streams that are read alternately, which the
/// hardware prefetcher does not recognize. So the pass over keys prefetches their values, and the pass over the values
/// prefetches the next keys. They are loaded into the second-level cache, because they may fill the first-level cache.
/// Lines are prefetched in ascending order; any other order costs a quarter of the bandwidth.
template <int64_t bytes>
HWY_INLINE void prefetch(const char* at) {
  if (at == nullptr) return;
  constexpr int64_t line = 64;
  HWY_UNROLL(16)
  for (int64_t i = 0; i < bytes; i += line) __builtin_prefetch(at + i, 0, 2);
}
HWY_INLINE const char* offset_by(const char* at, int64_t bytes) { return at == nullptr ? nullptr : at + bytes; }

/// Rows to prefetch: the first of them, or null, and the numbers from one to the next.
struct Ahead {
  const char* at = nullptr;
  int64_t step = 0;

  template <class T>
  HWY_INLINE Ahead after(int64_t rows) const {
    return {offset_by(at, bytes_of<T>(rows * step)), step};
  }
};
/// Prefetches N vectors of K rows of `size` numbers, from number d on; neighbouring rows as one stretch of memory.
template <class T, int K, int N>
HWY_INLINE void prefetch_rows(const Ahead& ahead, int64_t size, int64_t d) {
  if (ahead.step == size) return prefetch<bytes_of<T>(K * N * lanes)>(offset_by(ahead.at, bytes_of<T>(K * d)));
  for (int64_t i = 0; i < K; ++i)
    prefetch<bytes_of<T>(N * lanes)>(offset_by(ahead.at, bytes_of<T>(i * ahead.step + d)));
}

/// Loads N vectors of a row, from number d on. bfloat16 is loaded as pairs of vectors, the even elements in the first
/// and the odd ones in the second. That takes half the instructions of keeping their order. arrange_pairs() reorders
/// queries and sums accordingly.
template <int N>
HWY_INLINE void widen(const float* row, int64_t d, Float* to) {
  HWY_UNROLL(4)
  for (int n = 0; n < N; ++n) to[n] = hn::LoadU(Floats(), row + d + n * lanes);
}
template <int N>
HWY_INLINE void widen(const bfloat16* row, int64_t d, Float* to) {
  const Words w;
  if constexpr (N == 1) {
    const hn::Rebind<uint16_t, Words> half;
    const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(row + d));
    to[0] = hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(w, bits)));
  } else {
    static_assert(N % 2 == 0);
    HWY_UNROLL(2)
    for (int n = 0; n < N; n += 2) {
      const auto pairs = hn::LoadU(w, reinterpret_cast<const uint32_t*>(row + d + n * lanes));
      to[n] = hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs));
      to[n + 1] = hn::BitCast(Floats(), hn::And(pairs, hn::Set(w, 0xffff0000u)));
    }
  }
}
template <int N>
HWY_INLINE void widen(const float16* row, int64_t d, Float* to) {
  HWY_UNROLL(4)
  for (int n = 0; n < N; ++n) to[n] = core::HWY_NAMESPACE::load(Floats(), row + d + n * lanes);
}
/// All N vectors belong to one block. The products of scale and values are exact in float32.
template <int N>
HWY_INLINE void widen(const q8_block* row, int64_t d, Float* to) {
  static_assert(N * lanes <= q8_block::size);
  const Floats f;
  const q8_block& block = row[d / q8_block::size];
  const Float scale = core::HWY_NAMESPACE::set_float16(f, block.scale.bits);
  const int8_t* const values = block.values + d % q8_block::size;
  HWY_UNROLL(2)
  for (int n = 0; n < N; ++n) {
    const auto bytes = hn::LoadU(hn::Rebind<int8_t, Floats>(), values + n * lanes);
    to[n] = hn::Mul(scale, hn::ConvertTo(f, hn::PromoteTo(hn::Rebind<int32_t, Floats>(), bytes)));
  }
}

/// Reorders a row of floats into the order in which widen() loads bfloat16, or back.
inline void arrange_pairs(float* row, int64_t stride, bool back) {
  constexpr int64_t pair = 2 * lanes;
  for (float* at = row; at + pair <= row + stride; at += pair) {
    float before[pair];
    std::copy_n(at, pair, before);
    for (int64_t i = 0; i < lanes; ++i) {
      for (int64_t odd = 0; odd < 2; ++odd) {
        const int64_t here = odd * lanes + i, there = 2 * i + odd;
        back ? at[there] = before[here] : at[here] = before[there];
      }
    }
  }
}

/// store_sums: to[i] = sum of the lanes of v[i], for four vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(const Float* v, float* to) {
  for (int i = 0; i < key_tile; ++i) to[i] = hn::GetLane(v[i]);
}
#else
/// The sum of each group of lanes that are four apart.
template <class D>
HWY_INLINE auto add_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

HWY_INLINE void store_sums(const Float* v, float* to) {
  const Floats f;
  const hn::Repartition<uint64_t, Floats> pairs;
  const auto ab = hn::Add(hn::InterleaveLower(f, v[0], v[1]), hn::InterleaveUpper(f, v[0], v[1]));
  const auto cd = hn::Add(hn::InterleaveLower(f, v[2], v[3]), hn::InterleaveUpper(f, v[2], v[3]));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto sums = add_blocks(f, hn::Add(hn::BitCast(f, low), hn::BitCast(f, high)));
  hn::StoreU(sums, hn::FixedTag<float, 4>(), to);
}
#endif

/// sum[r][i] += q[r] k_i' over N vectors of K keys, from number d on. `step` numbers lie between keys.
template <int R, int K, int N, class T>
HWY_INLINE void add_dots(const float* const* q, const T* k, int64_t step, int64_t d, Float (*sum)[K]) {
  Float key[K][N];
  HWY_UNROLL(4)
  for (int i = 0; i < K; ++i) widen<N>(row_after(k, i, step), d, key[i]);
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(2)
    for (int n = 0; n < N; ++n) {
      const Float query = hn::Load(Floats(), q[r] + d + n * lanes);
      HWY_UNROLL(4)
      for (int i = 0; i < K; ++i) sum[r][i] = hn::MulAdd(query, key[i][n], sum[r][i]);
    }
  }
}

/// scores[r][at + i] = q[r] k_i' for K keys of `size` numbers. Prefetches as many rows as it reads.
template <int R, int K, class T>
HWY_INLINE void dots(const float* const* q, const T* k, int64_t step, int64_t size, const Ahead& ahead, Scores* scores,
                     int64_t at) {
  const Floats f;
  Float sum[R][K];
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int i = 0; i < K; ++i) sum[r][i] = hn::Zero(f);
  }
  int64_t d = 0;
  for (; d + 4 * lanes <= size; d += 4 * lanes) {
    prefetch_rows<T, K, 4>(ahead, size, d);
    add_dots<R, K, 2>(q, k, step, d, sum);
    add_dots<R, K, 2>(q, k, step, d + 2 * lanes, sum);
  }
  for (; d + 2 * lanes <= size; d += 2 * lanes) {
    prefetch_rows<T, K, 2>(ahead, size, d);
    add_dots<R, K, 2>(q, k, step, d, sum);
  }
  if (d < size) add_dots<R, K, 1>(q, k, step, d, sum);
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    if constexpr (K == key_tile) {
      store_sums(sum[r], &scores[r][at]);
    } else {
      scores[r][at] = hn::GetLane(hn::SumOfLanes(f, sum[r][0]));
    }
  }
}

/// Number of vectors that widen() loads at once for a row of N vectors.
template <int N>
inline constexpr int widened = N == 1 ? 1 : 2;

/// out[r] += sum over i in [from, to) of weights[r][i] v_i, for N vectors from number d on. Prefetches as many numbers
/// as it reads.
template <int R, int N, class T>
HWY_INLINE void add_values(const T* v, int64_t step, int64_t d, const Ahead& ahead, const Scores* weights, int64_t from,
                           int64_t to, float* const* out) {
  const Floats f;
  Float sum[R][N];
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(8)
    for (int n = 0; n < N; ++n) sum[r][n] = hn::Load(f, out[r] + d + n * lanes);
  }
  for (int64_t i = from; i < to; ++i) {
    prefetch<bytes_of<T>(N * lanes)>(offset_by(ahead.at, bytes_of<T>(i * ahead.step + d)));
    const T* const row = row_after(v, i, step);
    Float weight[R];
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) weight[r] = hn::Set(f, weights[r][i]);
    HWY_UNROLL(4)
    for (int n = 0; n < N; n += widened<N>) {
      Float value[widened<N>];
      widen<widened<N>>(row, d + n * lanes, value);
      HWY_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        HWY_UNROLL(2)
        for (int m = 0; m < widened<N>; ++m) sum[r][n + m] = hn::MulAdd(weight[r], value[m], sum[r][n + m]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(8)
    for (int n = 0; n < N; ++n) hn::Store(sum[r][n], f, out[r] + d + n * lanes);
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
