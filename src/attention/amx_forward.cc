// Forward attention on AMX. A task holds some blocks of 32 queries of one head. Each visits its key blocks from the
// diagonal outwards, in items of several blocks: the scores of each block as S^T = K Q^T, so that a row's maximum, sum
// and bias are vector lanes; the weights P^T, rounded to bfloat16 and laid out for the next product; and then
// O^T += V^T P^T over the whole item.
//
// Where scale * |q| * max |k| is small, as it is in trained models, the softmax needs no running maximum: its reference
// is 0 and nothing can overflow. Elsewhere it is the online softmax (Milakov & Gimelshein 2018), item by item.
#if defined(__x86_64__)
#include <cmath>
#include <numbers>

#include "attention/amx_pack.h"
#include "attention/amx_plan.h"
#include "attention/amx_ramp.h"
#include "attention/amx_tiles.h"
#include "attention/blocks.h"
#include "attention/skip.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {
namespace {

/// Key blocks of an item: enough to pay for loading and storing O, few enough that P stays in the first-level cache.
constexpr int64_t item_blocks = 8;
/// Scores that need no running maximum lie within +-this, in units of exp2: sums then keep 60 binary orders both ways.
constexpr float safe_score = 64;

/// Two vectors, one lane for each query of a block.
struct Lanes {
  __m512 low, high;
};
ALIBI_AMX_INLINE Lanes load_lanes(const float* values) { return {_mm512_load_ps(values), _mm512_load_ps(values + 16)}; }
ALIBI_AMX_INLINE void store_lanes(float* values, const Lanes& lanes) {
  _mm512_store_ps(values, lanes.low);
  _mm512_store_ps(values + 16, lanes.high);
}

ALIBI_AMX_INLINE void add_lanes(float* values, const Lanes& lanes) {
  const Lanes old = load_lanes(values);
  store_lanes(values, {_mm512_add_ps(old.low, lanes.low), _mm512_add_ps(old.high, lanes.high)});
}
ALIBI_AMX_INLINE void multiply_lanes(float* values, const Lanes& lanes) {
  const Lanes old = load_lanes(values);
  store_lanes(values, {_mm512_mul_ps(old.low, lanes.low), _mm512_mul_ps(old.high, lanes.high)});
}

/// Sums of weights, lane by lane: as they are, for the log-sum-exp and the skip rule, and rounded to bfloat16, which is
/// what the values are multiplied by: divided by these, the weights add up to one.
struct Sums {
  Lanes exact, rounded;
};

/// A query block and its softmax so far.
struct QueryState {
  int64_t row = 0, rows = 0;
  int64_t position = 0;         ///< of the first row
  int64_t first = 0, last = 0;  ///< key blocks that any row sees
  int64_t left = 0, right = 0;  ///< key blocks visited so far
  int64_t low = 0, high = 0;    ///< key blocks that are to be visited
  bool safe = false;            ///< needs no running maximum
  uint16_t* queries = nullptr;  ///< `columns` tiles
  float* out = nullptr;         ///< O^T, [step][column half][row half][16][16]
  float* sum = nullptr;         ///< [32]: of exp2(score - max)
  float* rounded = nullptr;     ///< [32]: of the same, rounded
  float* max = nullptr;         ///< [32]: reference of the exponentials
  float* norms = nullptr;       ///< [32]: bounds on |q|
};

/// Key blocks [begin, end) for one query block.
struct Item {
  int64_t begin = 0, end = 0;
};

/// Pairs of weights rounded to bfloat16: those of an even key row below those of the next.
ALIBI_AMX_INLINE __m512i round_pairs(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);  // weights are positive: adding half a unit and cutting off rounds
  const __m512i e = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i o = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, e, o);
}

/// P^T = exp2(factor * S^T + addend) as `pairs` tiles, added to the sums.
ALIBI_AMX_INLINE void make_weights(const float* scores, __m512 factor, const Lanes& addend, uint16_t* weights,
                                   Sums& sums) {
  const auto ones = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (int64_t pair = 0; pair < 16; ++pair) {
    const float* row = scores + pair / 8 * 2 * tile_floats + pair % 8 * 32;
    const __m512 even_low = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(row), factor, addend.low));
    const __m512 odd_low = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(row + 16), factor, addend.low));
    const __m512 even_high = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(row + tile_floats), factor, addend.high));
    const __m512 odd_high = exp2_of(_mm512_fmadd_ps(_mm512_load_ps(row + tile_floats + 16), factor, addend.high));
    const __m512i low = round_pairs(even_low, odd_low), high = round_pairs(even_high, odd_high);
    _mm512_store_si512(weights + pair * 32, low);
    _mm512_store_si512(weights + tile_halves + pair * 32, high);
    sums.exact.low = _mm512_add_ps(sums.exact.low, _mm512_add_ps(even_low, odd_low));
    sums.exact.high = _mm512_add_ps(sums.exact.high, _mm512_add_ps(even_high, odd_high));
    sums.rounded.low = _mm512_dpbf16_ps(sums.rounded.low, (__m512bh)low, ones);
    sums.rounded.high = _mm512_dpbf16_ps(sums.rounded.high, (__m512bh)high, ones);
  }
}

/// max = the larger of max and factor * S^T + base.
ALIBI_AMX_INLINE void take_maximum(const float* scores, __m512 factor, __m512 base, Lanes& max) {
  for (int64_t row = 0; row < block_rows; ++row) {
    const float* at = scores + row / 16 * 2 * tile_floats + row % 16 * 16;
    max.low = _mm512_max_ps(max.low, _mm512_fmadd_ps(_mm512_load_ps(at), factor, base));
    max.high = _mm512_max_ps(max.high, _mm512_fmadd_ps(_mm512_load_ps(at + tile_floats), factor, base));
  }
}

class Forward {
 public:
  Forward(const Problem& problem, const ForwardTask& task, const KeyView& keys, float largest_value)
      : problem_(problem),
        sequence_(problem.sequences[task.sequence]),
        plan_(problem, task.sequence, task.head),
        keys_(keys),
        steps_(steps_of(problem.head_dim)),
        key_blocks_((plan_.keys + block_rows - 1) / block_rows),
        count_(0),
        workspace_(Workspace::take(static_cast<size_t>(floats_needed(steps_)))),
        ramps_(plan_, workspace_.part(Ramps::floats)),
        scores_(workspace_.part(item_blocks * block_floats)),
        weights_(halves(item_blocks * block_halves)) {
    longest_key_ = keys.norm_from[0];
    const float headroom = std::log2(static_cast<float>(plan_.keys)) + std::log2(std::fmax(largest_value, 1.0f));
    sums_fit_ = headroom + safe_score < 120;
    skips_ = problem.tolerance > 0;
    if (skips_) {
      log_budget_ = std::log2(skip_budget(problem));
      log_count_before_ = log_count(plan_.before);
      log_count_after_ = log_count(plan_.after);
    }
    const int64_t blocks = (sequence_.queries + block_rows - 1) / block_rows;
    const int64_t end =
        blocks < task.block + ForwardTask::blocks_together ? blocks : task.block + ForwardTask::blocks_together;
    prefetch(queries_at(task.block));
    for (int64_t b = task.block; b < end; ++b) {
      if (b + 1 < end) prefetch(queries_at(b + 1));
      start(b);
    }
  }

  void run(AttentionStats& stats) {
    for (int64_t i = 0; i < count_; ++i) stats.blocks_total += queries_[i].last - queries_[i].first;
    for (bool more = true; more;) {
      more = false;
      for (int64_t i = 0; i < count_; ++i) {
        const Item item = next(queries_[i]);
        if (item.begin == item.end) continue;
        more = true;
        visit(queries_[i], item);
        stats.blocks_visited += item.end - item.begin;
        if (skips_) narrow(queries_[i], queries_[i].sum, queries_[i].max);
      }
    }
  }

  void finish(const BlockNumbers& numbers, AttentionState* state) {
    prefetch(out_of(queries_[0]));
    for (int64_t i = 0; i < count_; ++i) {
      const QueryState& q = queries_[i];
      alignas(64) float inverse[block_rows];
      for (int64_t half = 0; half < block_rows; half += vector_floats) {
        _mm512_store_ps(inverse + half, _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_load_ps(q.rounded + half)));
        if (state == nullptr) continue;
        const __m512 log =
            _mm512_mul_ps(_mm512_add_ps(log2_of(_mm512_load_ps(q.sum + half)), _mm512_load_ps(q.max + half)),
                          _mm512_set1_ps(std::numbers::ln2_v<float>));
        float* lse = state->lse.data<float>() + (sequence_.batch * problem_.heads + plan_.head) * problem_.queries;
        _mm512_mask_storeu_ps(lse + sequence_.query_begin + q.row + half, row_mask(q, half), log);
      }
      if (i + 1 < count_) prefetch(out_of(queries_[i + 1]));
      unpack_transposed(q.out, inverse, RowOrder::natural, out_of(q));
      if (state == nullptr || state->first_block.empty()) continue;
      const auto at = static_cast<size_t>(numbers.at(plan_.sequence, plan_.head, q.row / block_rows));
      state->first_block[at] = static_cast<int32_t>(q.left);
      state->last_block[at] = static_cast<int32_t>(q.right);
    }
  }

 private:
  static int64_t floats_needed(int64_t steps) {
    const int64_t each = steps * (block_halves / 2 + block_floats) + 4 * block_rows;
    return Ramps::floats + item_blocks * (block_floats + block_halves / 2) + ForwardTask::blocks_together * each;
  }

  uint16_t* halves(int64_t count) { return reinterpret_cast<uint16_t*>(workspace_.part(count / 2)); }

  /// log2 of min(number of keys, 1 / (1 - exp2(-slope))), the sum of a geometric series.
  float log_count(float slope) const {
    const double geometric = slope > 0 ? -1 / std::expm1(-static_cast<double>(slope) * std::numbers::ln2) : HUGE_VAL;
    return static_cast<float>(std::log2(std::fmin(static_cast<double>(plan_.keys), geometric)));
  }

  static __mmask16 row_mask(const QueryState& q, int64_t first) {
    const int64_t rows = q.rows - first;
    return static_cast<__mmask16>(rows <= 0 ? 0 : rows >= 16 ? 0xffff : (1 << rows) - 1);
  }

  Source queries_at(int64_t block) const {
    const int64_t row = block * block_rows;
    return source_at(problem_.q, sequence_.batch, sequence_.query_begin + row, plan_.head, sequence_.queries - row,
                     problem_.head_dim);
  }
  Target out_of(const QueryState& q) const {
    return target_at(problem_.out, sequence_.batch, sequence_.query_begin + q.row, plan_.head, q.rows,
                     problem_.head_dim);
  }

  void start(int64_t block) {
    QueryState& q = queries_[count_++];
    q.row = block * block_rows;
    const int64_t left = sequence_.queries - q.row;
    q.rows = left < block_rows ? left : block_rows;
    q.position = problem_.query_offset + q.row;
    const auto [first, last] = plan_.blocks_seen(q.position, q.position + q.rows - 1);
    const int64_t own = (q.position + q.rows - 1) / block_rows;  // the last row's own key
    q.first = q.low = first;
    q.last = q.high = last;
    q.left = q.right = (own < key_blocks_ ? own : key_blocks_ - 1) + 1;
    q.queries = halves(steps_ * block_halves);
    q.out = workspace_.part(steps_ * block_floats);
    q.sum = workspace_.part(block_rows);
    q.rounded = workspace_.part(block_rows);
    q.max = workspace_.part(block_rows);
    q.norms = workspace_.part(block_rows);
    const Source source =
        source_at(problem_.q, sequence_.batch, sequence_.query_begin + q.row, plan_.head, q.rows, problem_.head_dim);
    pack_columns(source, q.queries);
    const float longest = row_norms(source, q.norms);
    q.safe = sums_fit_ && std::fabs(plan_.factor) * longest * longest_key_ <= safe_score;
    const __m512 reference = _mm512_set1_ps(q.safe ? 0.0f : -HUGE_VALF);
    const Lanes zero = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    store_lanes(q.sum, zero);
    store_lanes(q.rounded, zero);
    store_lanes(q.max, {reference, reference});
    if (!skips_) return;
    // Before the first key is read: every row sees its own key, whose score is at least -factor |q| max |k|.
    alignas(64) float sum[block_rows], max[block_rows];
    const __m512 reach = _mm512_set1_ps(-std::fabs(plan_.factor) * longest_key_);
    const Lanes norms = load_lanes(q.norms);
    store_lanes(max, {_mm512_mul_ps(norms.low, reach), _mm512_mul_ps(norms.high, reach)});
    store_lanes(sum, {_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f)});
    narrow(q, sum, max);
  }

  static Item next(QueryState& q) {
    Item item;
    if (q.left > q.low) {
      item = {q.left - item_blocks > q.low ? q.left - item_blocks : q.low, q.left};
      q.left = item.begin;
    } else if (q.right < q.high) {
      item = {q.right, q.right + item_blocks < q.high ? q.right + item_blocks : q.high};
      q.right = item.end;
    }
    return item;
  }

  void visit(QueryState& q, const Item& item) {
    const __m512 factor = _mm512_set1_ps(plan_.factor);
    const Lanes zero = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    Sums sums = {zero, zero};
    if (q.safe) {
      visit_safely(q, item, factor, sums);
    } else {
      visit_online(q, item, factor, sums);
    }
    const bool first = q.right - q.left == item.end - item.begin;
    add_lanes(q.sum, sums.exact);
    add_lanes(q.rounded, sums.rounded);
    add_values(q, item, first);
  }

  /// The scores of a key block; returns what is to be added to them.
  float make_scores(const QueryState& q, int64_t block, float* scores) {
    const Ramp ramp = ramps_.at(block, q.position);
    load_block(ramp.tiles);
    multiply_blocks(keys_.rows + block * steps_ * block_halves, block_halves, q.queries, steps_);
    store_block(scores);
    return ramp.base;
  }

  /// Weights against 0.
  void visit_safely(const QueryState& q, const Item& item, __m512 factor, Sums& sums) {
    for (int64_t b = 0; b < item.end - item.begin; ++b) {
      float* scores = scores_ + b % 2 * block_floats;
      const __m512 base = _mm512_set1_ps(make_scores(q, item.begin + b, scores));
      make_weights(scores, factor, {base, base}, weights_ + b * block_halves, sums);
    }
  }

  /// Weights against a running maximum: the scores of the whole item first.
  void visit_online(QueryState& q, const Item& item, __m512 factor, Sums& sums) {
    float bases[item_blocks];
    const Lanes before = load_lanes(q.max);
    Lanes max = before;
    for (int64_t b = item.begin; b < item.end; ++b) {
      float* scores = scores_ + (b - item.begin) * block_floats;
      bases[b - item.begin] = make_scores(q, b, scores);
      take_maximum(scores, factor, _mm512_set1_ps(bases[b - item.begin]), max);
    }
    store_lanes(q.max, max);
    if (q.right - q.left > item.end - item.begin) {
      rescale(q, {exp2_of(_mm512_sub_ps(before.low, max.low)), exp2_of(_mm512_sub_ps(before.high, max.high))});
    }
    for (int64_t b = 0; b < item.end - item.begin; ++b) {
      const __m512 base = _mm512_set1_ps(bases[b]);
      const Lanes addend = {_mm512_sub_ps(base, max.low), _mm512_sub_ps(base, max.high)};
      make_weights(scores_ + b * block_floats, factor, addend, weights_ + b * block_halves, sums);
    }
  }

  void rescale(QueryState& q, const Lanes& by) {
    multiply_lanes(q.sum, by);
    multiply_lanes(q.rounded, by);
    for (int64_t row = 0; row < steps_ * block_floats; row += 16) {
      const __m512 scale = row / tile_floats % 2 == 0 ? by.low : by.high;
      _mm512_store_ps(q.out + row, _mm512_mul_ps(_mm512_load_ps(q.out + row), scale));
    }
  }

  /// O^T += V^T P^T, 32 columns of the values at a time.
  void add_values(QueryState& q, const Item& item, bool first) {
    for (int64_t step = 0; step < steps_; ++step) {
      float* out = q.out + step * block_floats;
      if (first) {
        zero_block();
      } else {
        load_block(out);
      }
      multiply_blocks(keys_.transposed + (step * key_blocks_ + item.begin) * block_halves, block_halves, weights_,
                      item.end - item.begin);
      store_block(out);
    }
  }

  /// Takes key blocks that provably do not matter off [low, high): see skip.h. A row that has collected sum *
  /// exp2(max) owes the keys at distance d and beyond at most exp2(reach - slope d) * count, so they may be skipped
  /// where d is at least (reach + log2(count) - log2(budget sum) - max) / slope.
  void narrow(QueryState& q, const float* sums, const float* maxima) {
    if (q.low < q.left) {
      const float norm = keys_.norm_before[q.left];
      __m512 least = _mm512_set1_ps(static_cast<float>(block_rows));
      for (int64_t half = 0; half < block_rows; half += vector_floats) {
        const __m512 need = distance_needed(q, half, sums, maxima, norm, log_count_before_, plan_.before);
        const __m512 row = row_numbers(half);
        least = _mm512_mask_min_ps(least, row_mask(q, half), least, _mm512_sub_ps(row, need));
      }
      // Keys before position + least are far enough from every row.
      const int64_t key = q.position + static_cast<int64_t>(std::floor(_mm512_reduce_min_ps(least)));
      const int64_t block = key < 0 ? 0 : key / block_rows;
      q.low = block > q.left ? q.left : block > q.low ? block : q.low;
    }
    if (q.high > q.right) {
      const float norm = keys_.norm_from[q.right];
      __m512 most = _mm512_setzero_ps();
      for (int64_t half = 0; half < block_rows; half += vector_floats) {
        const __m512 need = distance_needed(q, half, sums, maxima, norm, log_count_after_, plan_.after);
        const __m512 row = row_numbers(half);
        most = _mm512_mask_max_ps(most, row_mask(q, half), most, _mm512_add_ps(row, need));
      }
      const int64_t key = q.position + static_cast<int64_t>(std::ceil(_mm512_reduce_max_ps(most)));
      const int64_t block = (key + block_rows - 1) / block_rows;
      q.high = block < q.right ? q.right : block < q.high ? block : q.high;
    }
  }

  static __m512 row_numbers(int64_t first) {
    const __m512 lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(lane, _mm512_set1_ps(static_cast<float>(first)));
  }

  /// Within [0, 2^30]; the latter where nothing may be skipped. Every rounding is on the safe side.
  __m512 distance_needed(const QueryState& q, int64_t half, const float* sums, const float* maxima, float norm,
                         float log_count, float slope) const {
    constexpr float never = 0x1p30f;
    const __m512 reach = _mm512_mul_ps(_mm512_load_ps(q.norms + half), _mm512_set1_ps(std::fabs(plan_.factor) * norm));
    const __m512 max = _mm512_load_ps(maxima + half);
    const __m512 owed = _mm512_sub_ps(
        _mm512_add_ps(reach, _mm512_set1_ps(log_count)),
        _mm512_add_ps(_mm512_add_ps(log2_of(_mm512_load_ps(sums + half)), max), _mm512_set1_ps(log_budget_)));
    // Rounding of the scores and of this bound.
    const __m512 slack =
        _mm512_fmadd_ps(_mm512_add_ps(reach, _mm512_abs_ps(max)), _mm512_set1_ps(0x1p-12f), _mm512_set1_ps(0x1p-7f));
    const __m512 total = _mm512_add_ps(owed, slack);
    // One more than needed, since positions and distances are rounded too; a slope of 0 needs all or nothing.
    const __m512 inverse = _mm512_set1_ps(slope > 0x1p-30f ? 1 / slope : 0x1p30f);
    __m512 need = _mm512_fmadd_ps(total, inverse, _mm512_set1_ps(1.0f));
    need = _mm512_fmadd_ps(_mm512_abs_ps(need), _mm512_set1_ps(0x1p-20f), need);
    // max and min give their second operand for NaN.
    need = _mm512_max_ps(_mm512_setzero_ps(), _mm512_min_ps(need, _mm512_set1_ps(never)));
    return need;
  }

  const Problem& problem_;
  const Sequence& sequence_;
  HeadPlan plan_;
  KeyView keys_;
  int64_t steps_;
  int64_t key_blocks_;
  int64_t count_;
  Workspace workspace_;
  Ramps ramps_;
  float* scores_;
  uint16_t* weights_;
  float longest_key_ = 0;
  bool sums_fit_ = false;
  bool skips_ = false;
  float log_budget_ = 0, log_count_before_ = 0, log_count_after_ = 0;
  QueryState queries_[ForwardTask::blocks_together];
};

}  // namespace

AttentionStats forward_task(const Problem& problem, const ForwardTask& task, const KeyView& keys, float largest_value,
                            const BlockNumbers& numbers, AttentionState* state) {
  const FlushDenormals flush;
  const TileScope tiles;
  AttentionStats stats;
  Forward forward(problem, task, keys, largest_value);
  forward.run(stats);
  forward.finish(numbers, state);
  return stats;
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
#endif
