// What a cache holds, as the decode kernels see it.
#pragma once

#include <vector>

#include "alibi/kv_cache.h"
#include "attention/decode/kv_cache_norms.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KvCache::State {
  State(int64_t batch_size, int64_t head_count, int64_t dim, DType type)
      : batch(batch_size),
        kv_heads(head_count),
        head_dim(dim),
        dtype(type),
        norms(batch_size * head_count),
        radii(batch_size * head_count) {}

  int64_t batch, kv_heads, head_dim;
  DType dtype;
  int64_t length = 0;
  int64_t capacity = 0;
  int64_t stride = 0;       ///< elements from key to key: head_dim rounded up to row_multiple, the rest zeros
  Tensor k, v;              ///< [batch, kv_heads, capacity, stride]: each head's rows in one stream
  kernels::NormTree norms;  ///< ||k||, of head b * kv_heads + h
  kernels::NormTree radii;  ///< ||k - centre||
  /// [batch * kv_heads, stride]: about the mean of the first keys, which follows from them alone and is zero while
  /// there are fewer than centre_rows.
  std::vector<float> centres;

  const float* centre(int64_t head) const { return &centres[static_cast<size_t>(head * stride)]; }

  static constexpr int64_t row_multiple = 16;  ///< the widest vector of float32

  /// The rows of a head, as [capacity, stride].
  const void* rows(const Tensor& from, int64_t b, int64_t head) const {
    const auto offset = static_cast<size_t>((b * kv_heads + head) * capacity * stride) * size_of(dtype);
    return static_cast<const char*>(from.raw()) + offset;
  }
};

}  // namespace alibi
