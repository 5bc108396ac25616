// What a cache holds, as the decode kernels see it.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "alibi/kv_cache.h"
#include "alibi/stream.h"
#include "attention/cached_bounds.h"
#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_norms.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {

struct [[gnu::visibility("hidden")]] KvCache::State {
  State(int64_t batch_size, int64_t head_count, int64_t dim, DType type, Device place = Device::cpu)
      : batch(batch_size),
        kv_heads(head_count),
        head_dim(dim),
        dtype(type),
        device(place),
        stride(place == Device::cpu ? core::ceil_div(dim, row_multiple) * row_multiple : dim),
        begins(static_cast<size_t>(head_count), 0),
        norms(batch_size * head_count),
        radii(batch_size * head_count),
        evicted(static_cast<size_t>(batch_size * head_count)),
        centres(place == Device::cpu ? static_cast<size_t>(batch_size * head_count * stride) : 0),
        queue(alibi::stream()) {}

  static constexpr int64_t row_multiple = 16;  ///< the widest vector of float32

  int64_t batch, kv_heads, head_dim;
  DType dtype;
  Device device;   ///< of k and v; norms, radii and centres are of the CPU's alone
  int64_t stride;  ///< elements from key to key: on the CPU head_dim rounded up to row_multiple, the rest zeros
  int64_t length = 0;
  int64_t capacity = 0;         ///< the length that there is room for
  std::vector<int64_t> begins;  ///< [kv_heads] the first key held, a multiple of kernels::cache_block
  Tensor k, v;  ///< [batch, rows_of_batch(), stride]: the keys [own_begin, capacity) of each head in a line
  /// Of a fork: the keys [0, end) of each head, in the memory of the cache that it was made of, where they stay as they
  /// are. It has evicted none.
  struct Shared {
    Tensor k, v;           ///< [batch, kv_heads * capacity, stride]
    int64_t capacity = 0;  ///< of that cache
    int64_t end = 0;       ///< a multiple of kernels::cache_block; 0: nothing is shared
  } shared;
  /// Keys of k and v before it are shared by forks. Threads may make them at the same time.
  struct Mark {
    Mark() = default;
    Mark(const Mark& other) : key(other.key.load()) {}
    Mark& operator=(const Mark& other) {
      key = other.key.load();
      return *this;
    }
    std::atomic<int64_t> key = 0;
  } forked;
  kernels::NormTree norms;                    ///< ||k||, of head b * kv_heads + h
  kernels::NormTree radii;                    ///< ||k - centre||
  std::vector<kernels::EvictedKeys> evicted;  ///< of head b * kv_heads + h
  /// [batch * kv_heads, stride]: about the mean of the first keys, which follows from them alone and is zero while
  /// there are fewer than centre_rows.
  std::vector<float> centres;
  kernels::CachedBounds bounds;  ///< of another device than the CPU: what stands there for the three
  void* queue;                   ///< of a device: the stream in which the last call changed the cache
  void* memory_queue = nullptr;  ///< of a device: the stream in which k, v and bounds were allocated and will be freed

  const float* centre(int64_t head) const { return &centres[static_cast<size_t>(head * stride)]; }

  int64_t begin(int64_t head) const { return begins[static_cast<size_t>(head)]; }
  /// Throws Error unless it lies in the CPU's memory, where alone there is this operation.
  void check_on_cpu(const char* operation) const {
    check(device == Device::cpu, "[kv_cache] {} is for caches in the CPU's memory, this one lies on '{}'", operation,
          name_of(device));
  }
  bool has_evicted() const {
    return std::any_of(begins.begin(), begins.end(), [](int64_t b) { return b > 0; });
  }

  /// The first key of a head that lies in k and v.
  int64_t own_begin(int64_t head) const { return std::max(begin(head), shared.end); }

  /// Where the row of a head's own key lies among all rows.
  int64_t row(int64_t b, int64_t head, int64_t key) const {
    int64_t before = 0;
    for (int64_t h = 0; h < head; ++h) before += capacity - own_begin(h);
    return b * rows_of_batch() + before + key - own_begin(head);
  }
  int64_t rows_of_batch() const {
    int64_t rows = 0;
    for (int64_t h = 0; h < kv_heads; ++h) rows += capacity - own_begin(h);
    return rows;
  }

  /// Of the shape that queries of a type see, whatever lies behind it: for checks of shapes.
  Tensor as_seen(DType type) const { return Tensor::view(k.raw(), {batch, length, kv_heads, head_dim}, type); }

  /// The row of a key, and those after it until own_begin() or the end.
  const void* key_rows(int64_t b, int64_t head, int64_t key) const { return rows(k, shared.k, b, head, key); }
  const void* value_rows(int64_t b, int64_t head, int64_t key) const { return rows(v, shared.v, b, head, key); }

 private:
  const void* rows(const Tensor& own, const Tensor& other, int64_t b, int64_t head, int64_t key) const {
    const bool is_own = key >= own_begin(head);
    const int64_t at = is_own ? row(b, head, key) : (b * kv_heads + head) * shared.capacity + key;
    return static_cast<const char*>((is_own ? own : other).raw()) + static_cast<size_t>(at * stride) * size_of(dtype);
  }
};

namespace kernels {

/// Throws Error for what no call over a cache takes.
inline void check_cached_options(const char* operation, const AttentionOptions& options) {
  check(options.dropout == 0, "[{}] options.dropout is {}, expected 0", operation, options.dropout);
  check(options.cu_seqlens_q.empty() && options.cu_seqlens_k.empty(),
        "[{}] options.cu_seqlens is set, but a cache holds no packed sequences", operation);
}

/// New memory for the keys of each head from `begins` on, less those before `shared`, which lie elsewhere, and a copy
/// of those there are.
void move_rows(KvCache::State& cache, std::vector<int64_t> begins, int64_t capacity, int64_t shared);
/// New memory for as many keys, on the cache's device.
void set_capacity(KvCache::State& cache, int64_t capacity);

}  // namespace kernels
}  // namespace alibi
