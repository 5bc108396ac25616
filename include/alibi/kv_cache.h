// Cached decoding: the keys and values of past tokens, and attention of a few new queries over them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "alibi/attention.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// Keys and values of one attention layer. It grows with what is appended: there is no fixed limit to its length.
/// With them it keeps the largest norm of every block of keys, which the skip rule asks before it reads a key.
///
/// The oldest keys can be evicted, of each key/value head as many as it no longer needs. What is left of them is how
/// long they were: evicted_share() bounds what they could have weighed.
class ALIBI_API KvCache {
 public:
  /// float32, or bfloat16 for half the memory; on a GPU bfloat16 or float16, and head_dim a multiple of 8 up to 256.
  /// There all work is queued in the thread's stream (stream.h), and what is appended and asked lies there, too; it has
  /// no fork() and no evict() (docs/gpu.md). Throws Error if an extent is not positive.
  KvCache(int64_t batch, int64_t kv_heads, int64_t head_dim, DType dtype = DType::float32, Device device = Device::cpu);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  /// A copy with memory of its own.
  KvCache clone() const;
  /// A copy that reads what there is, but for the last keys of an unfinished block of 64, where it lies: what either
  /// appends is its own. Keys that were evicted before end this: then it is a clone. Forks of a fork share what that
  /// one shares, and copy the rest.
  KvCache fork() const;

  int64_t batch() const;
  int64_t kv_heads() const;
  int64_t head_dim() const;
  DType dtype() const;
  Device device() const;
  /// Keys appended to each batch entry; key j has position j.
  int64_t length() const;
  /// The first key that a head still holds, in every batch entry: 0 unless some were evicted.
  int64_t begin(int64_t kv_head) const;
  /// The length it can have without a new allocation.
  int64_t capacity() const;
  /// Memory it occupies, what it shares included.
  int64_t bytes() const;
  /// Of it, the memory of the cache that it was forked from, which other forks of that one share.
  int64_t shared_bytes() const;

  /// k and v [batch, new, kv_heads, head_dim], float32 or bfloat16 (on a GPU float16, too), any strides with a unit
  /// inner stride; rounded to the cache's data type where that is the narrower one. They may be keys() and values()
  /// themselves. Throws Error, naming the argument, and leaves the cache as it was.
  void append(const Tensor& k, const Tensor& v);
  /// Allocates room for `keys` keys in all.
  void reserve(int64_t keys);
  /// Forgets all but the first `length` keys. Throws Error if one of these was evicted.
  void truncate(int64_t length);

  /// Evicts the keys of each kv_head that come before `begins` of it, less those that share a block of 64 with kept
  /// ones, and leaves room for `room` keys more: the memory is given back, but for what a copy of the cache takes while
  /// it is made. A head never gets keys back. Throws Error if there is not a number up to length() for each head.
  void evict(std::span<const int64_t> begins, int64_t room);

  /// Copies what it shares: keys() and values() of a fork lie in one piece from here on.
  void own();

  /// Views [batch, length, kv_heads, head_dim], e.g. for attention() of a long chunk of queries. They hold until the
  /// cache is changed or destroyed. Throws Error if it shares keys, or if some were evicted; cached_attention() reads
  /// what is left.
  Tensor keys() const;
  Tensor values() const;

  struct State;  ///< kernel-private
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// attention() of a few queries over a cache: the same formula, errors and (optional) `state`, with each key and value
/// read once for all queries and heads that share it, and with the keys split over the threads.
/// q and out [batch, queries, heads, head_dim], float32 or bfloat16, whatever the cache holds. The queries are the last
/// rows unless options.query_offset says where they are.
/// options.tolerance holds for each row as in attention(); skipped keys are not read, so that with linear biases the
/// time of a call does not grow with the length of the cache. options.dropout and packed sequences are not supported.
/// out may be q itself. The same bits at any number of threads.
/// Over a cache on a GPU q and out are of its type, and lie there; options.buckets is not supported; a state with a
/// tolerance makes the call wait, for the numbers of blocks.
ALIBI_API void attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                                AttentionState* state = nullptr);
/// The same; returns out, like q but contiguous.
ALIBI_API Tensor attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options = {},
                                  AttentionState* state = nullptr);

/// attention() of many queries over a cache: the kernel of attention(), made for long chunks, over what each head still
/// holds. q, out and `state` as there, in the cache's type; the queries stand behind what was evicted. No dropout, no
/// packed sequences; buckets only while all heads hold the same keys. Throws Error for a fork that shares keys: own()
/// them.
ALIBI_API void cached_attention(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                                AttentionState* state = nullptr);

/// An upper bound of the share of its softmax weight that any of these queries, of any head, would have given to keys
/// that the cache has evicted (docs/attention.md); 0 if there are none, 1 where nothing is known. `lse`: of the call
/// that gave the queries' attention over the cache, with these options.
ALIBI_API double evicted_share(const Tensor& q, const KvCache& cache, const AttentionOptions& options,
                               const Tensor& lse);

}  // namespace alibi
