// The parts of attention_decode: which keys a row must visit, visiting a range of keys, and merging the results.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "attention/bias.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/problem.h"

namespace alibi::kernels {

/// Rows of keys and values of one head, which may lie in two places.
struct CachedHead {
  CachedHead(const KvCache::State& cache, int64_t batch, int64_t head)
      : dtype(cache.dtype),
        stride(cache.stride),
        begin(cache.own_begin(head)),
        k(cache.key_rows(batch, head, begin)),
        v(cache.value_rows(batch, head, begin)) {
    if (cache.shared.end == 0) return;
    shared_k = cache.key_rows(batch, head, 0);
    shared_v = cache.value_rows(batch, head, 0);
  }

  /// The rows from a key on, a multiple of cache_block, for a block at least.
  template <class T>
  const T* keys(int64_t key) const {
    return key < begin ? static_cast<const T*>(shared_k) + key * stride
                       : static_cast<const T*>(k) + (key - begin) * stride;
  }
  template <class T>
  const T* values(int64_t key) const {
    return key < begin ? static_cast<const T*>(shared_v) + key * stride
                       : static_cast<const T*>(v) + (key - begin) * stride;
  }

  DType dtype;
  int64_t stride;  ///< elements from row to row, a multiple of 16; beyond head_dim they are zeros
  int64_t begin;   ///< the first key of k and v, a multiple of cache_block
  const void *k, *v;
  const void *shared_k = nullptr, *shared_v = nullptr;  ///< the keys before, if there are any
};

/// One query of one head.
struct DecodeRow {
  const float* q;  ///< [stride], zeros beyond head_dim, as decode_arrange() leaves it
  HeadBias bias;
  int64_t position;
  int64_t begin, end;  ///< the keys it visits: those it sees, less those the skip rule drops
};

/// Attention of a row over some of its keys. Scores are in units of log2.
struct DecodePartial {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;  ///< of 2^(score - max)
  float* out;      ///< [stride], sum of 2^(score - max) v
};

/// Brings a query into the order in which decode_range() takes the keys of a cache of this data type.
void decode_arrange(float* row, int64_t stride, DType dtype);

/// Of the keys of [begin, end) those that each row visits, as its partial result, which comes without any (`out`
/// zeros). At most `decode_rows_together` rows. `next`: the keys that this thread will likely read after these, or
/// null.
void decode_range(const CachedHead& head, float scale, std::span<const DecodeRow> rows, int64_t begin, int64_t end,
                  const void* next, DecodePartial* partials);

inline constexpr int64_t decode_rows_together = 64;

/// The skip rule (docs/attention.md) for one row that has visited a near range of keys. Far keys are dropped, farthest
/// first, while the bound of the sum of their weights stays within a budget. A stretch of n keys at distance D or more,
/// none longer than N, weighs at most
///
///     2^(c ||q|| N - m D - max) (1 - 2^(-m n)) / (1 - 2^-m)       c = |scale| log2(e), m = slope log2(e)
///
/// and N comes from the tree of norms: whole far stretches are decided by one value each. So is R, the largest distance
/// from the keys' centre k0: where it is less, scale log2(e) q k0' + c ||q|| R stands for c ||q|| N.
class DecodeSkip {
 public:
  /// centre: of the keys of the head, as decode_arrange() leaves it. budget: tolerance times the row's sum so far,
  /// relative to max.
  DecodeSkip(const KvCache::State& cache, int64_t head, const float* centre, float scale, const DecodeRow& row,
             double max, double budget);

  /// Of the keys [begin, end), all before the row: the first that must be visited, or `end`.
  int64_t first_needed(int64_t begin, int64_t end);
  /// Of the keys [begin, end), all after the row: the end of those that must be visited, or `begin`.
  int64_t end_needed(int64_t begin, int64_t end);

 private:
  /// What both do, from the farthest keys on.
  template <bool before>
  Range needed(Range keys);
  /// Takes the bound of what a stretch of keys weighs off the budget, if it fits.
  bool spend(float norm, float radius, float slope, int64_t distance, int64_t keys);

  const NormTree &norms_, &radii_;
  int64_t head_;
  const DecodeRow& row_;
  double max_;
  double budget_;
  double reach_ = 0;     // largest score of a key of norm 1, log2 units
  double centre_ = 0;    // score of the keys' centre
  double rounding_ = 0;  // of a score, by its largest magnitude
  double flushed_ = 0;   // by which denormal products may raise a score
};

}  // namespace alibi::kernels
