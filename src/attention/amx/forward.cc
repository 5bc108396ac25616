// Forward attention on AMX. A task has some blocks of 32 queries of one head. Each visits its key blocks from the
// diagonal outwards, in items of several blocks. It computes the scores of each block as S^T = K Q^T, so that a row's
// maximum, sum and bias are vector lanes, then the weights P^T, rounded to bfloat16 in the layout of the next product,
// and then O^T += V^T P^T over the whole item.
//
// If scale * |q| * max |k| is small, as it is in trained models, the softmax needs no running maximum: its reference is
// 0 and nothing can overflow. Otherwise it is the online softmax (Milakov & Gimelshein 2018), item by item.
//
// Weights are rounded to bfloat16 in any case. If no running maximum and no log-sum-exp is needed, they are computed to
// that precision only.
#include <cmath>
#include <numbers>

#include "attention/amx/pack.h"
#include "attention/amx/plan.h"
#include "attention/amx/ramp.h"
#include "attention/amx/skip.h"
#include "attention/amx/softmax.h"
#include "attention/amx/tiles.h"
#include "attention/kernel_state.h"
#include "attention/key_part.h"
#include "attention/workspace.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {
namespace {

/// Scores within +-safe_score, in units of exp2, need no running maximum: the sums still have 60 binary orders of
/// magnitude in both directions.
constexpr float safe_score = 64;

/// A query block and its softmax state.
struct QueryState {
  int64_t row = 0, rows = 0;
  int64_t position = 0;         ///< position of the first row
  int64_t seen = 0;             ///< number of key blocks that at least one row sees
  int64_t left = 0, right = 0;  ///< key blocks visited so far
  int64_t low = 0, high = 0;    ///< key blocks that must be visited
  bool safe = false;            ///< true if no running maximum is needed
  uint16_t* queries = nullptr;  ///< `columns` tiles
  float* out = nullptr;         ///< O^T, [step][column half][row half][16][16]
  float* sum = nullptr;         ///< [32]: sum of exp2(score - max)
  float* rounded = nullptr;     ///< [32]: the same sum of rounded weights
  float* max = nullptr;         ///< [32]: reference of the exponentials
  float* norms = nullptr;       ///< [32]: upper bounds of |q|
  float* products = nullptr;    ///< [32]: product of q and the centre of the keys, as a score
  float* shares = nullptr;      ///< [32]: position of |q| on the chord of the skip rule
  Levels levels;                ///< the chord's levels
  uint32_t* draws = nullptr;    ///< [32]: dropout draws
};

class Forward {
 public:
  Forward(const Problem& problem, const ForwardTask& task, const PackedKeys& keys, bool has_state)
      : problem_(problem),
        has_state_(has_state),
        sequence_(problem.sequences[task.sequence]),
        plan_(problem, task.sequence, task.head),
        keys_(keys.view(task.sequence, task.head / problem.group())),
        readable_(readable_key_blocks(problem, task.sequence, task.head / problem.group(), block_rows)),
        steps_(steps_of(problem.head_dim)),
        key_blocks_((plan_.keys + block_rows - 1) / block_rows),
        skip_(problem, plan_, keys.bounds()),
        mask_(problem.dropout_seed, sequence_.batch, task.head),
        sink_(problem.sink(task.head) * std::numbers::log2e_v<float>),
        has_sink_(std::isfinite(problem.sink(task.head))),
        workspace_(Workspace::take(static_cast<size_t>(floats_needed()))),
        ramps_(plan_, workspace_.part(Ramps::floats)),
        scores_(workspace_.part(item_blocks * block_floats)),
        weights_(halves(item_blocks * block_halves)) {
    const float headroom = std::log2(static_cast<float>(plan_.keys)) + std::log2(std::fmax(keys.largest_value(), 1.0f));
    sums_fit_ = headroom + safe_score < 120;
    const int64_t blocks = (sequence_.queries + block_rows - 1) / block_rows;
    const int64_t end =
        blocks < task.block + ForwardTask::blocks_together ? blocks : task.block + ForwardTask::blocks_together;
    prefetch(queries_at(task.block));
    for (int64_t b = task.block; b < end; ++b) {
      if (b + 1 < end) prefetch(queries_at(b + 1));
      start(b);
    }
    if (problem.dropout > 0) fill_dropout();
  }

  void run(AttentionStats& stats) {
    for (int64_t i = 0; i < count_; ++i) stats.blocks_total += queries_[i].seen;
    for (bool more = true; more;) {
      more = false;
      for (int64_t i = 0; i < count_; ++i) {
        const Range item = next(queries_[i]);
        if (item.begin == item.end) continue;
        more = true;
        visit(queries_[i], item);
        stats.blocks_visited += item.end - item.begin;
        if (skip_.active()) narrow(queries_[i], queries_[i].sum, queries_[i].max);
      }
    }
  }

  void finish(const BlockIndex& index, AttentionState* state) {
    prefetch(out_of(queries_[0]));
    for (int64_t i = 0; i < count_; ++i) {
      const QueryState& q = queries_[i];
      alignas(64) float inverse[block_rows];
      const __m512 kept = _mm512_set1_ps(DropoutMask::scale(problem_.dropout));
      for (int64_t half = 0; half < block_rows; half += vector_floats) {
        _mm512_store_ps(inverse + half, _mm512_div_ps(kept, _mm512_load_ps(q.rounded + half)));
        if (state == nullptr) continue;
        const __m512 log =
            _mm512_mul_ps(_mm512_add_ps(log2_of(_mm512_load_ps(q.sum + half)), _mm512_load_ps(q.max + half)),
                          _mm512_set1_ps(std::numbers::ln2_v<float>));
        float* lse = state->lse.data<float>() + (sequence_.batch * problem_.heads + plan_.head) * problem_.queries;
        _mm512_mask_storeu_ps(lse + sequence_.query_begin + q.row + half, lane_mask(q.rows, half), log);
      }
      if (i + 1 < count_) prefetch(out_of(queries_[i + 1]));
      unpack_transposed(q.out, inverse, RowOrder::natural, out_of(q));
      if (state == nullptr) continue;
      core::state_of(state->kernel)
          .note_visited(index.at(plan_.sequence, plan_.head, q.row / block_rows), {q.left, q.right});
    }
  }

 private:
  int64_t floats_needed() const {
    const int64_t each = steps_ * (block_halves / 2 + block_floats) + 7 * block_rows;
    const int64_t draws = problem_.dropout > 0 ? key_blocks_ * block_pairs : 0;
    return Ramps::floats + item_blocks * (block_floats + block_halves / 2) + ForwardTask::blocks_together * each +
           draws;
  }

  uint16_t* halves(int64_t count) { return reinterpret_cast<uint16_t*>(workspace_.part(count / 2)); }

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
    q.position = sequence_.query_offset + q.row;
    const Range seen = plan_.blocks_seen(q.position, q.position + q.rows - 1);
    const int64_t own =
        (q.position + q.rows - 1) / block_rows;  // the block that contains the key at the last row's position
    q.seen = seen.size();
    q.low = seen.begin;
    q.high = seen.end;
    q.left = q.right = (own < key_blocks_ ? own : key_blocks_ - 1) + 1;
    q.queries = halves(steps_ * block_halves);
    q.out = workspace_.part(steps_ * block_floats);
    q.sum = workspace_.part(block_rows);
    q.rounded = workspace_.part(block_rows);
    q.max = workspace_.part(block_rows);
    q.norms = workspace_.part(block_rows);
    q.products = workspace_.part(block_rows);
    q.shares = workspace_.part(block_rows);
    q.draws = reinterpret_cast<uint32_t*>(workspace_.part(block_rows));
    const Source source =
        source_at(problem_.q, sequence_.batch, sequence_.query_begin + q.row, plan_.head, q.rows, problem_.head_dim);
    pack_columns(source, q.queries);
    const float longest = row_norms(source, q.norms);
    q.safe = sums_fit_ && std::fabs(plan_.factor) * longest * keys_.longest + plan_.largest_bias <= safe_score &&
             (!has_sink_ || std::fabs(sink_) <= safe_score);
    const __m512 reference = _mm512_set1_ps(q.safe ? 0.0f : has_sink_ ? sink_ : -HUGE_VALF);
    const __m512 sum = _mm512_set1_ps(!has_sink_ ? 0.0f : q.safe ? std::exp2(sink_) : 1.0f);
    store_lanes(q.sum, {sum, sum});
    store_lanes(q.rounded, {sum, sum});
    store_lanes(q.max, {reference, reference});
    if (!skip_.active()) return;
    skip_.measure_queries(problem_, q.row, q.rows, q.norms, q.products, q.shares, q.levels);
    // The rule applies before the first key is read, since every row sees the key at its own position.
    alignas(64) float of_key[block_rows], least[block_rows];
    skip_.min_scores(q.norms, q.products, keys_.longest, least);
    store_lanes(of_key, {_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f)});
    narrow(q, of_key, least);
  }

  /// Computes the dropout draws of all query blocks and of all keys that at least one query block visits.
  void fill_dropout() {
    int64_t first = key_blocks_, last = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const QueryState& q = queries_[i];
      fill_query_draws(mask_, sequence_.first_query_drawn + q.row, q.draws);
      first = q.low < first ? q.low : first;
      last = q.high > last ? q.high : last;
    }
    pair_draws_ = reinterpret_cast<uint32_t*>(workspace_.part(key_blocks_ * block_pairs));
    for (int64_t b = first; b < last; ++b) {
      fill_pair_draws(mask_, sequence_.first_key_drawn + b * block_rows, pair_draws_ + b * block_pairs);
    }
  }

  Range next(QueryState& q) const {
    if (q.left > q.low && q.left - item_blocks < readable_.begin && q.low < readable_.begin) {
      note_missing(problem_, plan_.sequence, plan_.head / problem_.group(), KeyPart::before);
      q.low = q.left;
    }
    if (q.right < q.high && q.right + item_blocks > readable_.end && q.high > readable_.end) {
      note_missing(problem_, plan_.sequence, plan_.head / problem_.group(), KeyPart::after);
      q.high = q.right;
    }
    Range item;
    if (q.left > q.low) {
      item = {q.left - item_blocks > q.low ? q.left - item_blocks : q.low, q.left};
      q.left = item.begin;
    } else if (q.right < q.high) {
      item = {q.right, q.right + item_blocks < q.high ? q.right + item_blocks : q.high};
      q.right = item.end;
    }
    return item;
  }

  void visit(QueryState& q, const Range& item) {
    const Lanes zero = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    Sums sums = {zero, zero};
    if (q.safe) {
      visit_safely(q, item, sums);
    } else {
      visit_online(q, item, sums);
    }
    const bool first = q.right - q.left == item.end - item.begin;
    add_lanes(q.sum, sums.exact);
    add_lanes(q.rounded, sums.rounded);
    add_values(q, item, first);
  }

  /// Computes the scores of a key block. Returns what must be added to them.
  Ramp make_scores(const QueryState& q, int64_t block, float* scores) {
    const Ramp ramp = ramps_.at(block, q.position);
    const uint16_t* keys = keys_.rows + (block - keys_.first) * steps_ * block_halves;
    products_.multiply(ramp.start(), {keys, block_halves, q.queries, block_halves, steps_}, scores);
    return ramp;
  }

  BlockDropout dropout_of(const QueryState& q, int64_t block) const {
    return {q.draws, pair_draws_ + block * block_pairs, DropoutMask::threshold(problem_.dropout)};
  }

  /// Computes the weights of a key block; `number` is its index in the item.
  template <bool drops, bool gated>
  void weigh(const QueryState& q, int64_t block, int64_t number, const float* scores, const Lanes& addend,
             const BlockGates& gates, Sums& sums) {
    BlockDropout dropout;
    if (drops) dropout = dropout_of(q, block);
    uint16_t* weights = weights_ + number * block_halves;
    if (is_rough(q)) {
      make_rounded_weights<drops, gated>(scores, plan_.factor, addend, gates, dropout, weights, sums.rounded);
    } else {
      make_weights<drops, gated>(scores, _mm512_set1_ps(plan_.factor), addend, gates, dropout, weights, sums);
    }
  }
  void weigh(const QueryState& q, int64_t block, int64_t number, const float* scores, const Lanes& addend,
             const BlockGates& gates, Sums& sums) {
    const bool drops = problem_.dropout > 0, gated = gates.keys != nullptr;
    const auto call = drops ? (gated ? &Forward::weigh<true, true> : &Forward::weigh<true, false>)
                            : (gated ? &Forward::weigh<false, true> : &Forward::weigh<false, false>);
    (this->*call)(q, block, number, scores, addend, gates, sums);
  }
  /// Whether weights are computed to the precision of bfloat16.
  bool is_rough(const QueryState& q) const { return q.safe && !has_state_; }

  /// Computes weights relative to a score of 0. The scores of the next block do not wait for them.
  void visit_safely(const QueryState& q, const Range& item, Sums& sums) {
    Ramp ramp = make_scores(q, item.begin, scores_);
    for (int64_t b = 0; b < item.end - item.begin; ++b) {
      const int64_t block = item.begin + b;
      const __m512 base = _mm512_set1_ps(ramp.base);
      const BlockGates gates = ramp.gates;
      if (block + 1 < item.end) ramp = make_scores(q, block + 1, scores_ + (b + 1) % 2 * block_floats);
      weigh(q, block, b, scores_ + b % 2 * block_floats, {base, base}, gates, sums);
    }
    if (is_rough(q)) sums.exact = times(sums.rounded, _mm512_set1_ps(1 - 0x1p-7f));  // at most the exact sum
  }

  /// Computes weights relative to a running maximum. This needs the scores of the whole item first.
  void visit_online(QueryState& q, const Range& item, Sums& sums) {
    const __m512 factor = _mm512_set1_ps(plan_.factor);
    Ramp ramps[item_blocks];
    const Lanes before = load_lanes(q.max);
    Lanes max = before;
    for (int64_t b = item.begin; b < item.end; ++b) {
      float* scores = scores_ + (b - item.begin) * block_floats;
      const Ramp ramp = ramps[b - item.begin] = make_scores(q, b, scores);
      const auto take = ramp.gates.keys != nullptr ? take_maximum<true> : take_maximum<false>;
      take(scores, factor, _mm512_set1_ps(ramp.base), ramp.gates, max);
    }
    store_lanes(q.max, max);
    const bool first = q.right - q.left == item.end - item.begin;
    if (!first || has_sink_) {
      const Lanes by = {exp2_of(_mm512_sub_ps(before.low, max.low)), exp2_of(_mm512_sub_ps(before.high, max.high))};
      multiply_lanes(q.sum, by);
      multiply_lanes(q.rounded, by);
      if (!first) rescale(q, by);
    }
    for (int64_t b = 0; b < item.end - item.begin; ++b) {
      const __m512 base = _mm512_set1_ps(ramps[b].base);
      const Lanes addend = {_mm512_sub_ps(base, max.low), _mm512_sub_ps(base, max.high)};
      weigh(q, item.begin + b, b, scores_ + b * block_floats, addend, ramps[b].gates, sums);
    }
  }

  void rescale(QueryState& q, const Lanes& by) {
    for (int64_t row = 0; row < steps_ * block_floats; row += 16) {
      const __m512 scale = row / tile_floats % 2 == 0 ? by.low : by.high;
      _mm512_store_ps(q.out + row, _mm512_mul_ps(_mm512_load_ps(q.out + row), scale));
    }
  }

  /// O^T += V^T P^T, 32 columns of the values at a time.
  void add_values(QueryState& q, const Range& item, bool first) {
    for (int64_t step = 0; step < steps_; ++step) {
      float* out = q.out + step * block_floats;
      const uint16_t* values = keys_.transposed + (step * keys_.count + item.begin - keys_.first) * block_halves;
      products_.multiply(first ? Start::zero() : Start::block(out),
                         {values, block_halves, weights_, block_halves, item.end - item.begin}, out);
    }
  }

  /// Removes key blocks from [low, high) whose weight is provably negligible.
  void narrow(QueryState& q, const float* sums, const float* maxima) const {
    const SkipRows rows = {q.position, q.rows, q.norms, q.products, q.shares, q.levels, sums, maxima};
    skip_.narrow(rows, q.low, q.left, q.right, q.high, q.left == q.right);
  }

  const BlockProducts products_;
  const Problem& problem_;
  const bool has_state_;
  const Sequence& sequence_;
  HeadPlan plan_;
  KeyView keys_;
  Range readable_;  ///< key blocks
  int64_t steps_;
  int64_t key_blocks_;
  SkipRule skip_;
  DropoutMask mask_;
  float sink_;  ///< in log2 units
  bool has_sink_;
  Workspace workspace_;
  Ramps ramps_;
  float* scores_;
  uint16_t* weights_;
  bool sums_fit_ = false;
  uint32_t* pair_draws_ = nullptr;  ///< [key_blocks][16], with dropout
  int64_t count_ = 0;
  QueryState queries_[ForwardTask::blocks_together];
};

}  // namespace

AttentionStats forward_task(const Problem& problem, const ForwardTask& task, const PackedKeys& keys,
                            const BlockIndex& index, AttentionState* state) {
  const FlushDenormals flush;
  AttentionStats stats;
  Forward forward(problem, task, keys, state != nullptr);
  forward.run(stats);
  forward.finish(index, state);
  return stats;
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
