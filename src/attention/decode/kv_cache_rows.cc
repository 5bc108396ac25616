#include "attention/decode/kv_cache_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/decode/q8_rows.h"
#include "attention/skip/norms.h"

namespace alibi::kernels {
namespace {

float widen(float x) { return x; }
float widen(float16 x) { return static_cast<float>(x); }
float widen(bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

template <class To, class From>
void copy_row(const From* from, int64_t size, To* to, int64_t stride) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(size) * sizeof(To));
  } else {
    for (int64_t i = 0; i < size; ++i) to[i] = To(widen(from[i]));
  }
  for (int64_t i = size; i < stride; ++i) to[i] = To(0.0f);
}

/// An upper bound of the row's distance from a centre (without `centred`: of its norm) that exceeds it by at most one
/// rounding. +infinity if an element is not finite.
template <bool centred, class T>
float norm_above(const T* row, int64_t stride, const float* centre) {
  constexpr int64_t lanes = 8;  // number of independent sums; stride is a multiple of it
  double sums[lanes] = {};
  for (int64_t i = 0; i < stride; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      auto x = static_cast<double>(widen(row[i + lane]));
      if constexpr (centred) x -= static_cast<double>(centre[i + lane]);
      sums[lane] += x * x;
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  constexpr double above = 1 + 0x1p-23;  // the product, rounded to float, is not below the square root
  const auto norm = static_cast<float>(std::sqrt(sum) * above);
  return std::isnan(norm) ? std::numeric_limits<float>::infinity() : norm;
}

/// Calls body(pointer to the type of a cache's rows).
template <class Body>
void with_rows_of(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::float32:
      return body(static_cast<float*>(nullptr));
    case DType::q8_0:
      return body(static_cast<q8_block*>(nullptr));
    case DType::float16:
      return body(static_cast<float16*>(nullptr));
    default:
      return body(static_cast<bfloat16*>(nullptr));
  }
}

/// The element [b, row, head, 0].
template <class T>
const T* row_of(const Tensor& tensor, int64_t b, int64_t row, int64_t head) {
  return static_cast<const T*>(tensor.raw()) + b * tensor.stride(0) + row * tensor.stride(1) + head * tensor.stride(2);
}

/// copy_row() of the row [b, row, head] of a tensor of any type.
template <class To>
void copy_row_of(const Tensor& from, int64_t b, int64_t row, int64_t head, int64_t size, To* to, int64_t stride) {
  switch (from.dtype()) {
    case DType::float32:
      return copy_row(row_of<float>(from, b, row, head), size, to, stride);
    case DType::float16:
      return copy_row(row_of<float16>(from, b, row, head), size, to, stride);
    default:
      return copy_row(row_of<bfloat16>(from, b, row, head), size, to, stride);
  }
}

/// Copies rows [begin, end) of a head into the cache; `first` is the cache row of from's row 0.
template <class To>
void copy_rows(core::StateOf<KvCache>& cache, const Tensor& from, const Tensor& to, bool is_key, int64_t head,
               int64_t first, int64_t begin, int64_t end) {
  const int64_t b = head / cache.kv_heads, h = head % cache.kv_heads;
  To* row = to.data<To>() + cache.row(b, h, begin) * cache.row_elements();
  std::vector<float> wide(std::is_same_v<To, q8_block> ? static_cast<size_t>(cache.stride) : 0);
  for (int64_t i = begin; i < end; ++i, row += cache.row_elements()) {
    if constexpr (std::is_same_v<To, q8_block>) {
      copy_row_of(from, b, i - first, h, cache.head_dim, wide.data(), cache.stride);
      const float error = quantize_row(wide.data(), cache.stride, row);
      if (is_key) {
        float& largest = cache.errors.leaf(head, begin / cache_block);
        largest = std::max(largest, error);
      }
    } else {
      copy_row_of(from, b, i - first, h, cache.head_dim, row, cache.stride);
    }
  }
}

/// Updates the leaves of the blocks that contain keys [begin, end).
template <class T>
void raise_norms_of(core::StateOf<KvCache>& cache, int64_t head, int64_t begin, int64_t end) {
  float& longest = cache.norms.leaf(head, begin / cache_block);
  float& farthest = cache.radii.leaf(head, begin / cache_block);
  const float* centre = cache.centre(head);
  const auto* row = static_cast<const T*>(cache.key_rows(head / cache.kv_heads, head % cache.kv_heads, begin));
  std::vector<float> wide(std::is_same_v<T, q8_block> ? static_cast<size_t>(cache.stride) : 0);
  for (int64_t i = begin; i < end; ++i, row += cache.row_elements()) {
    const auto raise = [&](const auto* numbers) {
      longest = std::max(longest, norm_above<false>(numbers, cache.stride, centre));
      farthest = std::max(farthest, norm_above<true>(numbers, cache.stride, centre));
    };
    if constexpr (std::is_same_v<T, q8_block>) {
      widen_blocks(row, cache.row_elements(), wide.data());
      raise(wide.data());
    } else {
      raise(row);
    }
  }
}

}  // namespace

void raise_norms(core::StateOf<KvCache>& cache, int64_t head, int64_t begin, int64_t end) {
  with_rows_of(cache.dtype,
               [&](auto* row) { raise_norms_of<std::remove_pointer_t<decltype(row)>>(cache, head, begin, end); });
}

void set_norms(core::StateOf<KvCache>& cache, int64_t head, int64_t block, int64_t end) {
  cache.norms.leaf(head, block) = 0;
  cache.radii.leaf(head, block) = 0;
  raise_norms(cache, head, block * cache_block, end);
}

void rebuild(core::StateOf<KvCache>& cache, int64_t head, int64_t block) {
  cache.norms.rebuild(head, block);
  cache.radii.rebuild(head, block);
  cache.errors.rebuild(head, block);
}

void set_centre(core::StateOf<KvCache>& cache, int64_t head) {
  std::vector<float> rows(static_cast<size_t>(centre_rows * cache.stride));
  const void* keys = cache.key_rows(head / cache.kv_heads, head % cache.kv_heads, 0);
  const int64_t numbers = centre_rows * cache.stride;
  if (cache.dtype == DType::q8_0) {
    widen_blocks(static_cast<const q8_block*>(keys), numbers / q8_block::size, rows.data());
  } else if (cache.dtype == DType::float32) {
    std::copy_n(static_cast<const float*>(keys), numbers, rows.begin());
  } else {
    for (int64_t i = 0; i < numbers; ++i) rows[static_cast<size_t>(i)] = load_value(cache.dtype, keys, i);
  }
  make_centre(rows.data(), centre_rows, cache.stride, &cache.centres[static_cast<size_t>(head * cache.stride)]);
}

void write_rows(core::StateOf<KvCache>& cache, const Tensor& k, const Tensor& v, int64_t head, int64_t first,
                int64_t begin, int64_t end) {
  with_rows_of(cache.dtype, [&](auto* row) {
    using T = std::remove_pointer_t<decltype(row)>;
    copy_rows<T>(cache, k, cache.k, true, head, first, begin, end);
    copy_rows<T>(cache, v, cache.v, false, head, first, begin, end);
  });
}

}  // namespace alibi::kernels
