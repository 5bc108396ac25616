// The parts of attention_decode: which keys a row must visit, visiting a range of keys, and merging the results.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "attention/biases.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/problem.h"
#include "attention/skip/rule.h"

namespace alibi::kernels {

/// The keys and values of one head: those of a cache, of which the first ones may be shared with another cache and lie
/// in its memory, or those of a problem, which may lie in pages.
struct CachedHead {
  CachedHead(const core::StateOf<KvCache>& cache, int64_t batch, int64_t head)
      : dtype(cache.dtype),
        stride(cache.stride),
        k_step(stride),
        v_step(stride),
        begin(cache.own_begin(head)),
        k(cache.key_rows(batch, head, begin)),
        v(cache.value_rows(batch, head, begin)) {
    if (cache.shared.end == 0) return;
    shared_k = cache.key_rows(batch, head, 0);
    shared_v = cache.value_rows(batch, head, 0);
  }
  /// head_dim is a multiple of 16, and every block of keys lies in one page.
  CachedHead(const Problem& of, const Sequence& sequence_of_keys, int64_t kv_head)
      : dtype(of.dtype),
        stride(of.head_dim),
        k_step(of.k.row_stride),
        v_step(of.v.row_stride),
        begin(0),
        k(nullptr),
        v(nullptr),
        problem(&of),
        sequence(&sequence_of_keys),
        paged_head(kv_head) {}

  /// The rows from `key` on; `key` is a multiple of cache_block. At least one block of rows is contiguous.
  template <class T>
  const T* keys(int64_t key) const {
    if (problem != nullptr) return row_of<T>(problem->k, key);
    return key < begin ? row<T>(shared_k, key) : row<T>(k, key - begin);
  }
  template <class T>
  const T* values(int64_t key) const {
    if (problem != nullptr) return row_of<T>(problem->v, key);
    return key < begin ? row<T>(shared_v, key) : row<T>(v, key - begin);
  }

  DType dtype;
  int64_t stride;          ///< numbers of a row, a multiple of 16; numbers beyond head_dim are zeros
  int64_t k_step, v_step;  ///< numbers from one row to the next
  int64_t begin;           ///< index of the first key in k and v, a multiple of cache_block
  const void *k, *v;
  const void *shared_k = nullptr, *shared_v = nullptr;  ///< the keys before `begin`; null if there are none

  const Problem* problem = nullptr;  ///< null for a cache
  const Sequence* sequence = nullptr;
  int64_t paged_head = 0;

 private:
  template <class T>
  const T* row_of(const TensorView& rows, int64_t key) const {
    const KeyRow at = problem->key_row(*sequence, key);
    return rows.at<const T>(at.batch, at.row, paged_head);
  }
  template <class T>
  const T* row(const void* rows, int64_t index) const {
    return static_cast<const T*>(rows) + index * stride / (std::is_same_v<T, q8_block> ? q8_block::size : 1);
  }
};

/// One query of one head.
struct DecodeRow {
  const float* q;  ///< [stride], zeros beyond head_dim, as decode_arrange() leaves it
  HeadBias bias;
  int64_t position;
  int64_t begin, end;  ///< the keys that it visits: those that it sees, without those that the skip rule drops
};

/// Attention of a row over some of its keys. Scores are in units of log2.
struct DecodePartial {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;  ///< sum of 2^(score - max)
  float* out;      ///< [stride], sum of 2^(score - max) v
};

/// Reorders the elements of a query in the way that decode_range() reads the keys of a cache of this data type.
void decode_arrange(float* row, int64_t stride, DType dtype);

/// Computes the partial result of each row over the keys of [begin, end) that it visits. The partial results must be
/// empty and `out` zero. Accepts at most `decode_rows_together` rows. `next` points to the keys that this thread will
/// probably read next, or is null.
void decode_range(const CachedHead& head, ScoreScale scale, std::span<const DecodeRow> rows, int64_t begin, int64_t end,
                  const void* next, DecodePartial* partials);

inline constexpr int64_t decode_rows_together = 64;

/// The skip rule (docs/explanation/skip-rule.md) for one row that has visited its near keys. It drops far keys, from
/// the farthest on, while the bound of the sum of their weights is within a budget. A range of n keys at distance D or
/// more, with norms of at most N, has a weight of at most
///
///     2^(c ||q|| N + b(D) - max) (1 - 2^(-m n)) / (1 - 2^-m)       c = |scale| log2(e)
///
/// with b(D) the largest bias from D on, and m the least fall of the bias from key to key (skip/rule.h). The tree of
/// norms gives N, so one value decides about a whole range of far keys. Another tree gives R, the largest distance from
/// the keys' centre k0. If scale log2(e) q k0' + c ||q|| R is less than c ||q|| N, it is used instead. With a softcap,
/// this bound of the scores is capped like the scores.
class DecodeSkip {
 public:
  /// Scores of a query, or the largest ones of several queries, in log2 units.
  struct Scores {
    /// `q` and `centre`, the centre of the head's keys, have the same order of elements.
    Scores(const float* q, const float* centre, int64_t stride, ScoreScale scale);
    double per_norm;   ///< largest score of a key of norm 1
    double of_centre;  ///< score of the keys' centre
  };

  /// For queries of a head, the first of which is at `position`. `budget` is the tolerance times the sum so far of the
  /// row with the smallest one, relative to max.
  DecodeSkip(const core::StateOf<KvCache>& cache, int64_t head, const Scores& scores, ScoreScale scale,
             const HeadBias& bias, int64_t position, double max, double budget);

  /// Among the keys [begin, end), which all lie before `position`, the first that must be visited, or `end`.
  int64_t first_needed(int64_t begin, int64_t end);
  /// Among the keys [begin, end), which all lie after `position`, the end of those that must be visited, or `begin`.
  int64_t end_needed(int64_t begin, int64_t end);

 private:
  /// Implements both functions above, from the farthest keys to the nearest.
  template <bool before>
  Range needed(Range keys);
  /// Subtracts the bound of the weight of a range of keys from the budget. Returns false if the budget is too small.
  bool spend(float norm, float radius, Side side, int64_t distance, int64_t keys);

  const NormTree &norms_, &radii_;
  int64_t head_;
  SkipRow<double> row_;
  HeadBias bias_;
  int64_t position_;
  double budget_;
  Roundings roundings_[2];  // of each side
};

/// A key such that the weights of all keys of the cache before it sum to at most half of the tolerance, in every row of
/// the problem. Only the norms of these keys are read. 0 if there is no bound or the cache is too short to gain by it.
/// The cache is on the CPU and has evicted no keys.
int64_t first_needed_key(const Problem& problem, const core::StateOf<KvCache>& cache);

}  // namespace alibi::kernels
