// What a cache holds, as the decode kernels see it.
#pragma once

#include <algorithm>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/released_keys.h"
#include "core/parallel.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KvCache::State {
  State(int64_t batch_size, int64_t head_count, int64_t dim, DType type)
      : batch(batch_size),
        kv_heads(head_count),
        head_dim(dim),
        dtype(type),
        stride(ceil_div(dim, row_multiple) * row_multiple),
        begins(static_cast<size_t>(head_count), 0),
        norms(batch_size * head_count),
        radii(batch_size * head_count),
        released(static_cast<size_t>(batch_size * head_count)),
        centres(static_cast<size_t>(batch_size * head_count * stride)) {}

  static constexpr int64_t row_multiple = 16;  ///< the widest vector of float32

  int64_t batch, kv_heads, head_dim;
  DType dtype;
  int64_t stride;  ///< elements from key to key: head_dim rounded up to row_multiple, the rest zeros
  int64_t length = 0;
  int64_t capacity = 0;         ///< the length that there is room for
  std::vector<int64_t> begins;  ///< [kv_heads] the first key held, a multiple of kernels::cache_block
  Tensor k, v;                  ///< [batch, rows_of_batch(), stride]: the keys [begin, capacity) of each head in a line
  kernels::NormTree norms;      ///< ||k||, of head b * kv_heads + h
  kernels::NormTree radii;      ///< ||k - centre||
  std::vector<kernels::ReleasedKeys> released;  ///< of head b * kv_heads + h
  /// [batch * kv_heads, stride]: about the mean of the first keys, which follows from them alone and is zero while
  /// there are fewer than centre_rows.
  std::vector<float> centres;

  const float* centre(int64_t head) const { return &centres[static_cast<size_t>(head * stride)]; }

  int64_t begin(int64_t head) const { return begins[static_cast<size_t>(head)]; }
  bool has_released() const {
    return std::any_of(begins.begin(), begins.end(), [](int64_t b) { return b > 0; });
  }

  /// Where the row of a head's key lies among all rows.
  int64_t row(int64_t b, int64_t head, int64_t key) const {
    int64_t before = 0;
    for (int64_t h = 0; h < head; ++h) before += capacity - begin(h);
    return b * rows_of_batch() + before + key - begin(head);
  }
  int64_t rows_of_batch() const {
    int64_t rows = 0;
    for (const int64_t begin : begins) rows += capacity - begin;
    return rows;
  }

  /// Of the shape that queries of a type see, whatever lies behind it: for checks of shapes.
  Tensor as_seen(DType type) const { return Tensor::view(k.raw(), {batch, length, kv_heads, head_dim}, type); }

  /// The rows of a head from its first key on.
  const void* rows(const Tensor& from, int64_t b, int64_t head) const {
    const auto offset = static_cast<size_t>(row(b, head, begin(head)) * stride) * size_of(dtype);
    return static_cast<const char*>(from.raw()) + offset;
  }
};

}  // namespace alibi
