// The content of a cache, which the decode kernels read.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "alibi/kv_cache.h"
#include "alibi/stream.h"
#include "attention/bias/decay.h"
#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/kernel.h"
#include "core/access.h"
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
        stride(place == Device::cpu ? round_up_row(dim, type) : dim),
        begins(static_cast<size_t>(head_count), 0),
        norms(batch_size * head_count),
        radii(batch_size * head_count),
        errors(batch_size * head_count),
        evicted(static_cast<size_t>(batch_size * head_count)),
        centres(place == Device::cpu ? static_cast<size_t>(batch_size * head_count * stride) : 0),
        queue(alibi::stream()) {}

  /// The numbers of a row in memory: a multiple of the float32 values of the widest vector, or of a block of q8_0.
  static int64_t round_up_row(int64_t dim, DType type) {
    const int64_t multiple = std::max<int64_t>(16, numbers_in(type));
    return core::ceil_div(dim, multiple) * multiple;
  }
  static int64_t bytes_of_row(int64_t dim, DType type) {
    return round_up_row(dim, type) / numbers_in(type) * static_cast<int64_t>(size_of(type));
  }

  int64_t batch, kv_heads, head_dim;
  DType dtype;
  Device device;   ///< device of k and v; norms, radii and centres are used only on the CPU
  int64_t stride;  ///< numbers from one key to the next: on the CPU head_dim rounded up by round_up_row(), padded with
                   ///< zeros
  int64_t length = 0;
  int64_t capacity = 0;         ///< number of keys that fit the allocated memory
  std::vector<int64_t> begins;  ///< [kv_heads]: the first key that each head holds, a multiple of kernels::cache_block
  Tensor k, v;  ///< [batch, rows_of_batch(), row_elements()]: the keys [own_begin, capacity) of each head, contiguous
  /// Used in a fork: the keys [0, end) of each head. They are in the memory of the cache that was forked, where they do
  /// not change. A fork that shares keys has evicted none.
  struct Shared {
    Tensor k, v;           ///< [batch, kv_heads * capacity, row_elements()]
    int64_t capacity = 0;  ///< capacity of that cache
    int64_t end = 0;       ///< a multiple of kernels::cache_block; 0 if nothing is shared
  } shared;
  /// Forks share the keys of k and v before this one. Several threads may fork at the same time.
  struct Mark {
    Mark() = default;
    Mark(const Mark& other) : key(other.key.load()) {}
    Mark& operator=(const Mark& other) {
      key = other.key.load();
      return *this;
    }
    std::atomic<int64_t> key = 0;
  } forked;
  kernels::NormTree norms;                               ///< ||k||; the index of a head is b * kv_heads + h
  kernels::NormTree radii;                               ///< ||k - centre||
  kernels::NormTree errors;                              ///< with q8_0: ||k - the given key||; otherwise 0
  std::vector<kernels::EvictedKeys> evicted;             ///< the index of a head is b * kv_heads + h; unused with gates
  std::vector<kernels::EvictedWeights> evicted_weights;  ///< [batch * query heads] with gates, if keys were evicted
  /// [batch * kv_heads, stride]: the centre of the first centre_rows keys, or zero while there are fewer.
  std::vector<float> centres;
  kernels::Decays decays;        ///< on the CPU: of all keys, if there are gates
  kernels::CachedBounds bounds;  ///< on a device other than the CPU: replaces norms, radii and centres
  void* queue;                   ///< on a device: the stream in which the last call changed the cache
  void* memory_queue = nullptr;  ///< on a device: the stream in which k, v and bounds were allocated and are freed

  /// Number of query heads of the gates; 0 without gates.
  int64_t gate_heads() const {
    if (device == Device::cpu) return decays.heads();
    return bounds.log_decay.defined() ? bounds.log_decay.size(2) : 0;
  }
  const float* centre(int64_t head) const { return &centres[static_cast<size_t>(head * stride)]; }

  void resize_trees(int64_t keys) {
    for (kernels::NormTree* tree : {&norms, &radii, &errors}) tree->resize(keys);
  }
  int64_t row_elements() const { return stride / numbers_in(dtype); }
  int64_t row_bytes() const { return row_elements() * static_cast<int64_t>(size_of(dtype)); }
  int64_t begin(int64_t head) const { return begins[static_cast<size_t>(head)]; }
  /// Throws Error unless the cache is in the CPU's memory, because no device supports this operation.
  void check_on_cpu(const char* operation) const {
    check_usage(device == Device::cpu, "[kv_cache] {} needs a cache in the CPU's memory, but this cache is on '{}'",
                operation, name_of(device));
  }
  bool has_evicted() const {
    return std::any_of(begins.begin(), begins.end(), [](int64_t b) { return b > 0; });
  }

  /// The first key of a head that is in k and v.
  int64_t own_begin(int64_t head) const { return std::max(begin(head), shared.end); }

  /// Row index of a key in k and v. The key must be one of the head's own.
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

  /// A tensor with the shape of all keys, for checks of shapes. Its elements must not be read.
  Tensor as_seen(DType type) const { return Tensor::view(k.raw(), {batch, length, kv_heads, head_dim}, type); }

  /// The row of a key. The rows after it are contiguous up to own_begin() or the end.
  const void* key_rows(int64_t b, int64_t head, int64_t key) const { return rows(k, shared.k, b, head, key); }
  const void* value_rows(int64_t b, int64_t head, int64_t key) const { return rows(v, shared.v, b, head, key); }

 private:
  const void* rows(const Tensor& own, const Tensor& other, int64_t b, int64_t head, int64_t key) const {
    const bool is_own = key >= own_begin(head);
    const int64_t at = is_own ? row(b, head, key) : (b * kv_heads + head) * shared.capacity + key;
    return static_cast<const char*>((is_own ? own : other).raw()) + at * row_bytes();
  }
};

namespace kernels {

/// Upper bounds of ||k|| and ||k - centre|| of the keys in a block, as they were given to the cache.
struct KeyBounds {
  float norm = 0, radius = 0;
};
KeyBounds bounds_of_block(const core::StateOf<KvCache>& cache, int64_t head, int64_t block);

inline void check_no_gates(const char* operation, const AttentionOptions& options) {
  check_usage(!options.log_decay,
              "[{}] log_decay is set, expected it to be unset, because a cache has the gates of its keys (append)",
              operation);
}

/// Throws Error for options that are not supported with a cache.
inline void check_cached_options(const char* operation, const AttentionOptions& options) {
  check_usage(options.dropout_p == 0, "[{}] dropout_p is {}, expected 0", operation, options.dropout_p);
  check_usage(options.cu_seqlens_q.empty() && options.cu_seqlens_k.empty(),
              "[{}] cu_seqlens is set, expected it to be empty, because a cache holds no packed sequences", operation);
  check_no_gates(operation, options);
  check_usage(!options.block_table && options.seqused_k.empty() && options.leftpad_k.empty(),
              "[{}] block_table, seqused_k or leftpad_k is set, expected none of them, because a cache knows its keys",
              operation);
}

/// Gives a problem over the keys of a cache their gates.
inline void add_gates(const char* operation, const core::StateOf<KvCache>& cache, Problem& problem) {
  const int64_t heads = cache.gate_heads();
  if (heads == 0 || cache.length == 0) return;
  check_usage(problem.causal, "[{}] the cache has gates, but attention is not causal; expected causal", operation);
  check_usage(heads == problem.heads, "[{}] q has {} heads, expected {}, those of the gates in the cache", operation,
              problem.heads, heads);
  if (cache.device != Device::cpu) {
    problem.log_decay = cache.bounds.log_decay.slice(1, 0, cache.length);
    return;
  }
  problem.decays = std::shared_ptr<const Decays>(std::shared_ptr<void>(), &cache.decays);  // not owned
}

/// Moves the keys of each head from `begins` on into new memory with room for `capacity` keys. Keys before `shared` are
/// not moved, because they are in another cache.
void move_rows(core::StateOf<KvCache>& cache, std::vector<int64_t> begins, int64_t capacity, int64_t shared);
/// Moves the keys into new memory on the cache's device, with room for `capacity` keys.
void set_capacity(core::StateOf<KvCache>& cache, int64_t capacity);

}  // namespace kernels
}  // namespace alibi
