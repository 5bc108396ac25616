// Cached decoding: the keys and values of past tokens, and attention of a few new queries over them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "alibi/attention.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// Keys and values of one attention layer. The cache grows without a fixed limit. It also holds the largest norm of
/// each block of keys, which the skip rule reads before it reads keys.
///
/// The oldest keys can be evicted, a different number for each key/value head. Only the norms of evicted keys stay,
/// from which evicted_share() computes a bound of their weight.
class ALIBI_API KvCache {
 public:
  /// float32, bfloat16 for half the memory, or q8_0 for about a quarter: blocks of 32 numbers of a row with a common
  /// scale (q8_block). score_error() bounds what q8_0 changes. On a GPU bfloat16 or float16, and head_dim a multiple of
  /// 8 up to 256. On a GPU all work is queued in the thread's stream (stream.h), keys, values and queries are in its
  /// memory, and fork() and evict() are not available (docs/how-to/gpu.md). Throws Error if an extent is not positive.
  KvCache(int64_t batch, int64_t kv_heads, int64_t head_dim, DType dtype = DType::float32, Device device = Device::cpu);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  /// A copy with memory of its own.
  KvCache clone() const;
  /// A copy that shares the memory of all whole blocks of 64 keys and copies the rest. Each cache owns what it appends
  /// later. If keys have been evicted, this is a clone. A fork of a fork shares what the fork shares and copies the
  /// rest.
  KvCache fork() const;

  int64_t batch() const;
  int64_t kv_heads() const;
  int64_t head_dim() const;
  DType dtype() const;
  Device device() const;
  /// Number of keys appended to each batch entry; key j has position j.
  int64_t length() const;
  /// Position of the first key that a head still holds, in every batch entry; 0 unless keys were evicted.
  int64_t begin(int64_t kv_head) const;
  /// Length that fits without a new allocation.
  int64_t capacity() const;
  /// Bytes of memory, including shared memory.
  int64_t bytes() const;
  /// The part of bytes() that belongs to the cache that it was forked from and is shared with its other forks.
  int64_t shared_bytes() const;

  /// k and v [batch, new, kv_heads, head_dim], float32 or bfloat16 (on a GPU float16, too), any strides with a unit
  /// inner stride; rounded to the cache's data type if that is narrower. They may be keys() and values() of this cache.
  /// `log_decay` [batch, new, query heads] are the gates of these keys (AttentionOptions::log_decay), for all keys of a
  /// cache or for none. Throws Error that names the argument, and then leaves the cache unchanged.
  void append(const Tensor& k, const Tensor& v, const std::optional<Tensor>& log_decay = {});
  /// Allocates memory for `keys` keys in total.
  void reserve(int64_t keys);
  /// Removes all but the first `length` keys. Throws Error if one of these was evicted.
  void truncate(int64_t length);

  /// Evicts the keys of each kv_head before its entry in `begins`, except those in a block of 64 with kept keys, and
  /// keeps memory for `room` more keys. The other memory is released; during the call a copy of the cache exists.
  /// Evicted keys cannot be restored. Throws Error unless `begins` has a number up to length() for each head.
  void evict(std::span<const int64_t> begins, int64_t room);
  /// For a cache with gates: evicts, in whole blocks of 64, the oldest keys of each kv_head that no later query needs,
  /// and returns their number. All evicted keys of a head together then have at most the share `tolerance` of the
  /// softmax weight of each query from the last key on whose norm is at most query_norms[head] (one number for each
  /// query head), whatever keys and gates follow. The options are those of the later calls, with slopes or no other
  /// bias. `room` as above. evicted_share() has the bound for each actual query, and it also holds for longer ones.
  /// Throws Error for a cache without gates, and for wrong arguments.
  int64_t evict_negligible(double tolerance, std::span<const double> query_norms, const AttentionOptions& options,
                           int64_t room);

  /// Copies shared keys and values, so that keys() and values() of a fork are in one piece.
  void own();

  /// Views [batch, length, kv_heads, head_dim], e.g. for attention() of a long chunk of queries. They are valid until
  /// the cache is changed or destroyed. With q8_0 they are float32 copies. Throws Error if the cache shares keys or has
  /// evicted some; cached_attention() reads such caches.
  Tensor keys() const;
  Tensor values() const;

 private:
  friend struct core::Access;
  struct State;
  std::unique_ptr<State> state_;
};

/// attention() of a few queries over a cache: the same formula, errors and (optional) `state`, with each key and value
/// read once for all queries and heads that share it, and with the keys divided among the threads. q and out [batch,
/// queries, heads, head_dim], float32 or bfloat16, independent of the cache's type. The queries are the last rows
/// unless options.query_offset is set. options.tolerance applies to each row as in attention(). Skipped keys are not
/// read, so with linear biases the time of a call does not grow with the length of the cache. options.dropout and
/// packed sequences are not supported. out may be q itself. The same bits at any number of threads. With a cache on a
/// GPU, q and out have its type and are on that GPU, and options.buckets is not supported. With a state and a tolerance
/// the call waits for the GPU, to count the blocks.
ALIBI_API void attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                                AttentionState* state = nullptr);
/// The same; returns out, like q but contiguous.
ALIBI_API Tensor attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options = {},
                                  AttentionState* state = nullptr);

/// attention() of many queries over a cache: the kernel of attention(), which is fast for long chunks, over the keys
/// that each head still holds. q, out and `state` are as in attention(), in the cache's type; the positions of the
/// queries are after all evicted keys. With biases that fall and a tolerance, and without a `state`, far keys are not
/// read, so with slopes the time of a call does not grow with the length of the cache. Dropout and packed sequences are
/// not supported. Throws Error for a fork that shares keys; call own()
/// first.
ALIBI_API void cached_attention(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                                AttentionState* state = nullptr);

/// Upper bound of the share of softmax weight that any of these queries, in any head, would have given to evicted keys
/// (docs/explanation/skip-rule.md): 0 if there are none, 1 if no bound is known. `lse` is the log-sum-exp of the
/// attention of these queries over the cache with the same options.
ALIBI_API double evicted_share(const Tensor& q, const KvCache& cache, const AttentionOptions& options,
                               const Tensor& lse);

/// Upper bound of how much the rounding of a q8_0 cache changes a score of any of these queries: |scale| ||q|| times
/// the largest distance of a stored key from the key that was appended. Each weight before normalization changes by at
/// most a factor exp(bound), and the log-sum-exp by at most the bound. 0 for caches of other types, +infinity if a key
/// was not finite. evicted_share() includes this error.
ALIBI_API double score_error(const Tensor& q, const KvCache& cache, const AttentionOptions& options);

}  // namespace alibi
