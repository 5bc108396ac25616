// Forward attention in float32 arithmetic, for any instruction set.
//
// A task has a few query blocks that read the same key/value head. It visits the key blocks once, from the diagonal
// outwards, or with coordinates from near to far, and adds each to every query block that sees it (online softmax,
// Milakov & Gimelshein 2018). Within a block everything is transposed: vectors run across queries. So a row's maximum,
// sum and bias are lanes, keys and values are used as they lie in memory, and no reduction crosses lanes.
#include <algorithm>
#include <optional>
#include <vector>

#include "attention/kernel_state.h"
#include "attention/key_part.h"
#include "attention/skip/penalties.h"
#include "attention/vector/tasks.h"
#include "attention/workspace.h"
#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/vector/forward.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/vector/scores-inl.h"
#include "attention/vector/skip-inl.h"
#include "attention/vector/softmax-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and its softmax state. All arrays have one entry per query lane.
struct Running {
  QueryBlock block;
  float* queries;                    ///< [head_dim][query_rows]
  float* out;                        ///< [head_dim][query_rows]: sum of exp2(score - max) v
  float* max;                        ///< maximum of the scores so far, in log2 units; starts at the sink or -infinity
  float* sum;                        ///< sum of exp2(score - max), with that of the sink
  float* sum_low;                    ///< rounding error of sum
  float *norms, *products, *shares;  ///< of the queries, for the skip rule
  WeightBounds::Head keys;           ///< for the skip rule
  Levels levels;
  uint32_t* query_draws;                         ///< for dropout
  Range visited;                                 ///< key blocks
  bool done_before = false, done_after = false;  ///< nothing more must be visited in that direction
  // With coordinates:
  std::vector<PenaltyStep> steps;  ///< [key blocks]; empty if none is skipped
  RemainingWeights remaining;
  int stop = penalty_steps;  ///< key blocks from this step on are not visited
};

void drop_weights(const Problem& problem, const Sequence& sequence, int64_t key, int64_t count, const Running& running,
                  float* weights) {
  const Floats f;
  const DropoutMask mask(problem.dropout_seed, sequence.batch, running.block.head);
  const uint32_t threshold = DropoutMask::threshold(problem.dropout);
  for (int64_t pair = 0; pair < count; pair += 2) {
    const uint32_t pair_draw = mask.pair_draw(sequence.first_key_drawn + key + pair);
    for (int64_t c = 0; c < running.block.rows; c += lanes) {
      const auto bits = dropout_bits(running.query_draws + c, pair_draw);
      for (int64_t y = pair; y < std::min(pair + 2, count); ++y) {
        float* at = weights + y * query_rows + c;
        hn::Store(hn::IfThenZeroElse(dropped_weights(bits, y > pair, threshold), hn::Load(f, at)), f, at);
      }
    }
  }
}

/// Buffers for one tile.
struct TileBuffers {
  float* keys;    ///< [key_rows][stride]
  float* values;  ///< [key_rows][stride]
  float* scores;  ///< [key_rows][query_rows]
  HWY_ALIGN float factor[query_rows];
  TileBiases biases;
  Prefetcher prefetcher;  ///< prefetches keys and values of the next tile
};

/// Adds the key block that begins at `key` to a query block.
void fold(const Problem& problem, const Sequence& sequence, int64_t key, int64_t stride, TileBuffers& tile,
          Running& running) {
  const Floats f;
  const QueryBlock& block = running.block;
  const int64_t count = std::min(key_rows, block.seen.end - key);
  fill_bias(block, key, tile.biases);
  const SeenKeys seen(block, key, count, tile.biases);
  make_scores(problem, block, running.queries, tile.keys, stride, seen, tile.biases, tile.prefetcher, tile.scores);
  if (raise_max(tile.scores, seen, running.max, tile.factor)) {
    for (int64_t i = 0; i < problem.head_dim; ++i) {
      float* at = running.out + i * query_rows;
      for (int64_t c = 0; c < block.rows; c += lanes) {
        hn::Store(hn::Mul(hn::Load(f, at + c), hn::Load(f, tile.factor + c)), f, at + c);
      }
    }
  }
  make_weights(tile.scores, seen, tile.factor, running.max, running.sum, running.sum_low);
  if (problem.dropout > 0) drop_weights(problem, sequence, key, count, running, tile.scores);
  if (tile.biases.masked && !all_finite(tile.values, count * stride)) {
    add_carefully(tile.values, stride, tile.scores, count, problem.head_dim, block.rows, running.out);
    return;
  }
  multiply<Left::columns>(tile.values, stride, tile.scores, query_rows, block.rows, SumsOfKeys{seen, problem.head_dim},
                          tile.prefetcher, Add{running.out, query_rows});
}

/// What is left out of a row's biases: they are counted from the row's nearest key. 0 if it does not see that key.
double shift_of(const QueryBlock& block, int64_t x) {
  const int64_t distance = block.position + x < 0 ? -block.nearest(x) : block.nearest(x);
  return distance != 0 && block.bias.sees(distance) ? block.bias->precise_at(distance) : 0.0;
}

/// Divides by the sums and writes the block's rows and log-sum-exps.
void write_rows(const Problem& problem, const Sequence& sequence, int64_t stride, float* rows, const Running& running,
                AttentionState* state) {
  const QueryBlock& block = running.block;
  const float kept = DropoutMask::scale(problem.dropout);
  transpose(running.out, query_rows, rows, stride, round_up(problem.head_dim, 4), round_up(block.rows, 4));
  for (int64_t x = 0; x < block.rows; ++x) {
    const int64_t query_row = problem.query_row(sequence, block.row + x);
    const double sum = static_cast<double>(running.sum[x]) + static_cast<double>(running.sum_low[x]);
    const float inverse = sum == 0 ? 0.0f : kept / static_cast<float>(sum);
    store_row(problem, rows + x * stride, inverse, problem.out, sequence.batch, query_row, block.head);
    if (state == nullptr) continue;
    const int64_t at = (sequence.batch * problem.heads + block.head) * problem.queries + query_row;
    const double log_sum = static_cast<double>(running.max[x]) + std::log2(sum), near = log_sum * std::numbers::ln2;
    float &lse = state->lse.data<float>()[at], &of_kernel = core::state_of(state->kernel).lse.data<float>()[at];
    if (block.bias.coordinates) {
      lse = static_cast<float>(near);
      of_kernel = sum > 0 ? static_cast<float>(log_sum - static_cast<double>(in_log2(lse))) : 0.0f;
      continue;
    }
    of_kernel = static_cast<float>(near);
    lse = static_cast<float>(near + shift_of(block, x));
  }
}

/// The query blocks of a task.
class Task {
 public:
  Task(const Problem& problem, const QueryTask& task, const WeightBounds* bounds)
      : problem_(problem),
        task_(task),
        bounds_(bounds),
        sequence_(problem.sequences[task.sequence]),
        kv_head_(task.heads.begin / problem.group()),
        readable_(readable_key_blocks(problem, task.sequence, kv_head_, key_rows)),
        stride_(round_up(problem.head_dim, 16)) {
    const int64_t blocks = task.heads.size() * core::ceil_div(task.rows.size(), query_rows);
    const int64_t floats =
        blocks * (2 * stride_ + 7) * query_rows + (2 * stride_ + query_rows) * key_rows + stride_ * query_rows;
    Workspace workspace = Workspace::take(static_cast<size_t>(floats));
    tile_.keys = workspace.part(key_rows * stride_);
    tile_.values = workspace.part(key_rows * stride_);
    tile_.scores = workspace.part(key_rows * query_rows);
    rows_ = workspace.part(query_rows * stride_);
    running_.reserve(static_cast<size_t>(blocks));
    for (int64_t head = task.heads.begin; head < task.heads.end; ++head) {
      for (int64_t row = task.rows.begin; row < task.rows.end; row += query_rows) {
        running_.push_back(start(query_block_at(problem, sequence_, head, row), workspace));
      }
    }
  }

  /// Visits the keys: with coordinates from near to far, otherwise first from the diagonal backwards and then forwards.
  void run(AttentionStats& stats) {
    Range any = {std::numeric_limits<int64_t>::max(), 0};
    for (const Running& r : running_) {
      const Range& seen = r.block.key_blocks;
      if (seen.empty()) continue;
      any = {std::min(any.begin, seen.begin), std::max(any.end, seen.end)};
      stats.blocks_total += seen.size();
    }
    if (any.empty()) return;
    if (!problem_.coordinates.empty()) return visit_by_distance(stats);
    const int64_t position = sequence_.query_offset + task_.rows.end - 1;
    const int64_t diagonal = std::clamp(position < 0 ? 0 : position / key_rows, any.begin, any.end - 1);
    bool more = true;
    for (int64_t key_block = diagonal; more && key_block >= any.begin; --key_block) {
      more = visit(key_block, /*before=*/true, key_block - 1, stats);
    }
    more = true;
    for (int64_t key_block = diagonal + 1; more && key_block < any.end; ++key_block) {
      more = visit(key_block, /*before=*/false, key_block + 1, stats);
    }
  }

  void finish(AttentionState* state, const BlockIndex& index) {
    for (Running& r : running_) {
      write_rows(problem_, sequence_, stride_, rows_, r, state);
      if (state == nullptr) continue;
      core::state_of(state->kernel)
          .note_visited(index.at(task_.sequence, r.block.head, r.block.row / query_rows),
                        r.block.bias.coordinates ? Range{0, r.stop} : r.visited);
    }
  }

 private:
  Running start(const QueryBlock& block, Workspace& workspace) {
    Running running;
    running.block = block;
    running.queries = workspace.part(stride_ * query_rows);
    running.out = workspace.part(stride_ * query_rows);
    running.max = workspace.part(query_rows);
    running.sum = workspace.part(query_rows);
    running.sum_low = workspace.part(query_rows);
    running.norms = workspace.part(query_rows);
    running.products = workspace.part(query_rows);
    running.shares = workspace.part(query_rows);
    running.query_draws = reinterpret_cast<uint32_t*>(workspace.part(query_rows));
    load_queries(problem_, problem_.q, sequence_, block, rows_, stride_, running.queries);
    std::fill_n(running.out, stride_ * query_rows, 0.0f);
    std::fill_n(running.max, query_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(running.sum, query_rows, 0.0f);
    std::fill_n(running.sum_low, query_rows, 0.0f);
    const float sink = problem_.sink(block.head);
    for (int64_t x = 0; x < block.rows && std::isfinite(sink); ++x) {
      const double score = (static_cast<double>(sink) - shift_of(block, x)) * std::numbers::log2e;
      running.max[x] = static_cast<float>(score);
      const double rounding = std::exp2(score - static_cast<double>(running.max[x]));  // of a large number
      running.sum[x] = static_cast<float>(rounding);
      running.sum_low[x] = static_cast<float>(rounding - static_cast<double>(running.sum[x]));
    }
    if (bounds_ != nullptr) measure_queries(running);
    if (problem_.dropout > 0) {
      const DropoutMask mask(problem_.dropout_seed, sequence_.batch, block.head);
      for (int64_t x = 0; x < query_rows; ++x) {
        running.query_draws[x] = mask.query_draw(sequence_.first_query_drawn + block.row + x);
      }
    }
    return running;
  }

  /// Computes the data of the queries in rows_ that the skip rule needs.
  void measure_queries(Running& r) const {
    r.keys = bounds_->head(task_.sequence, r.block.head);
    for (float* values : {r.norms, r.products, r.shares}) std::fill_n(values, query_rows, 0.0f);
    const float unit = std::abs(problem_.scale) * std::numbers::log2e_v<float>;
    float least = std::numeric_limits<float>::infinity(), most = 0;
    for (int64_t x = 0; x < r.block.rows; ++x) {
      const float* query = rows_ + x * stride_;
      r.norms[x] = norm_bound(query, stride_);
      least = std::min(least, unit * r.norms[x]);
      most = std::max(most, unit * r.norms[x]);
      if (r.keys.centre_norm != 0) r.products[x] = scaled_product(problem_, query, r.keys.centre, stride_);
    }
    r.levels = r.keys.levels_of(least, most);
    for (int64_t x = 0; x < r.block.rows; ++x) r.shares[x] = r.levels.share(unit * r.norms[x]);
    const Box* const box = box_of(r);
    if (box == nullptr || r.block.bias.coordinates.slope == 0) return;
    std::vector<double> penalties;
    r.steps = steps_of(r.block.bias.coordinates, box, &penalties);
    r.remaining.measure(r.keys, r.levels, r.steps, penalties);
  }

  static const Box* box_of(const Running& r) {
    const CoordinateBias& bias = r.block.bias.coordinates;
    return bias ? bias.points->queries.box(r.block.row / query_rows) : nullptr;
  }

  /// Visits the key blocks from near to far, for the head with the largest slope.
  void visit_by_distance(AttentionStats& stats) {
    CoordinateBias steepest = running_.front().block.bias.coordinates;
    std::optional<Box> box;
    for (const Running& r : running_) {
      steepest.slope = std::max(steepest.slope, r.block.bias.coordinates.slope);
      const Box* const of = box_of(r);
      if (of == nullptr) continue;
      if (!box) box = *of;
      box->add(*of, steepest.points->keys.dims);
    }
    const std::vector<int32_t> order = near_to_far(steps_of(steepest, box ? &*box : nullptr));
    for (size_t i = 0; i < order.size(); ++i) {
      size_t next = i + 1;
      const auto is_stopped = [&](const Running& r) {
        return !r.steps.empty() && r.steps[static_cast<size_t>(order[next])] >= r.stop;
      };
      while (next < order.size() && std::all_of(running_.begin(), running_.end(), is_stopped)) ++next;
      visit(order[i], /*before=*/true, next < order.size() ? order[next] : -1, stats);
    }
  }

  /// With coordinates, whether a key block, and all others from its step on, are negligible.
  bool is_far(Running& r, int64_t key_block) const {
    if (r.steps.empty()) return false;
    const PenaltyStep step = r.steps[static_cast<size_t>(key_block)];
    if (step >= r.stop) return true;
    HWY_ALIGN static constexpr float beyond[query_rows] = {};  // penalties are in the chord
    const float norm = r.keys.norm_before[r.steps.size()] + r.keys.centre_norm;
    if (!negligible(problem_, r.block.rows, remaining_keys(problem_, r.remaining.from(step), 0, 0, norm), beyond,
                    {r.norms, r.products, r.shares, r.max, r.sum, r.sum_low})) {
      return false;
    }
    r.stop = step;
    return true;
  }

  /// Whether all keys from this block on, away from the diagonal, are negligible.
  bool is_done(const Running& r, int64_t key_block, bool before) const {
    if (bounds_ == nullptr) return false;
    const QueryBlock& block = r.block;
    const int64_t last = block.position + block.rows - 1;
    HWY_ALIGN float beyond[query_rows];
    RemainingKeys remaining;
    // The distances to the nearest of these keys, counted as for the bias.
    if (before) {
      const int64_t end = (key_block + 1) * key_rows, at = key_block + 1;  // the keys before it remain
      if (end > block.position) return false;
      remaining = remaining_keys(problem_, r.keys.chord_before(r.levels, at), r.keys.before[at].front(),
                                 r.keys.radius_before[at], r.keys.norm_before[at] + r.keys.centre_norm);
      block.bias->beyond(Side::before, std::min(block.position, block.keys - 1) - (end - 1), block.outside ? 0 : 1,
                         query_rows, beyond);
      for (int64_t x = 0; block.bias.decay && x < block.rows; ++x) {
        beyond[x] -= static_cast<float>(gates_in_log2(block.bias.decay, end - 1, block.position + x));
      }
    } else {
      const int64_t begin = key_block * key_rows, at = key_block;  // the keys from it on remain
      if (begin <= last) return false;
      remaining = remaining_keys(problem_, r.keys.chord_from(r.levels, at), r.keys.from[at].front(),
                                 r.keys.radius_from[at], r.keys.norm_from[at] + r.keys.centre_norm);
      block.bias->beyond(Side::after, begin - std::max<int64_t>(block.outside ? last : block.position, 0),
                         block.outside ? 0 : -1, query_rows, beyond);
    }
    return negligible(problem_, block.rows, remaining, beyond,
                      {r.norms, r.products, r.shares, r.max, r.sum, r.sum_low});
  }

  /// Adds a key block to the query blocks that still need it. Returns false if no query block needs more in that
  /// direction. `next_block` is probably the next one, or -1.
  bool visit(int64_t key_block, bool before, int64_t next_block, AttentionStats& stats) {
    const int64_t key = key_block * key_rows;
    bool loaded = false;
    bool more = false;
    for (Running& r : running_) {
      bool& done = before ? r.done_before : r.done_after;
      const Range& seen = r.block.key_blocks;
      if (before ? key_block < seen.begin : key_block >= seen.end) done = true;
      if (done) continue;
      more = true;
      if (before ? key_block >= seen.end : key_block < seen.begin) continue;
      if (r.block.bias.coordinates ? is_far(r, key_block) : is_done(r, key_block, before)) {
        done = !r.block.bias.coordinates;
        continue;
      }
      if (key_block < readable_.begin || key_block >= readable_.end) {
        note_missing(problem_, task_.sequence, kv_head_, before ? KeyPart::before : KeyPart::after);
        done = true;
        continue;
      }
      if (!loaded) {
        const int64_t count = std::min(key_rows, sequence_.keys - key);
        load_keys(problem_, problem_.k, sequence_, key, count, kv_head_, tile_.keys, stride_);
        load_keys(problem_, problem_.v, sequence_, key, count, kv_head_, tile_.values, stride_);
        const int64_t next = next_block * key_rows;
        if (next >= readable_.begin * key_rows && next < std::min(sequence_.keys, readable_.end * key_rows)) {
          tile_.prefetcher.start(problem_, sequence_, next, std::min(key_rows, sequence_.keys - next), kv_head_);
        }
        loaded = true;
      }
      fold(problem_, sequence_, key, stride_, tile_, r);
      if (r.visited.empty()) r.visited = {key_block, key_block};
      r.visited = {std::min(r.visited.begin, key_block), std::max(r.visited.end, key_block + 1)};
      ++stats.blocks_visited;
    }
    return more;
  }

  const Problem& problem_;
  const QueryTask& task_;
  const WeightBounds* bounds_;  ///< null if the skip rule does not apply
  const Sequence& sequence_;
  int64_t kv_head_;
  Range readable_;  ///< key blocks
  int64_t stride_;
  float* rows_ = nullptr;  ///< [query_rows][stride_]
  TileBuffers tile_;
  std::vector<Running> running_;
};

}  // namespace

AttentionStats forward_task(const Problem& problem, const QueryTask& query_task, const WeightBounds* bounds,
                            const BlockIndex& index, AttentionState* state) {
  const FlushDenormals flush;
  AttentionStats stats;
  Task task(problem, query_task, bounds);
  task.run(stats);
  task.finish(state, index);
  return stats;
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(forward_task);

AttentionStats vector_forward_task(const Problem& problem, const QueryTask& task, const WeightBounds* bounds,
                                   const BlockIndex& index, AttentionState* state) {
  return HWY_DYNAMIC_DISPATCH(forward_task)(problem, task, bounds, index, state);
}

}  // namespace alibi::kernels
#endif
