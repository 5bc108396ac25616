// Forward attention with given positions. A task visits the key blocks from near to far and adds each to every query
// block that needs it, as the kernel for counted distances does (vector/forward.cc).
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/spatial/spatial.h"
#include "attention/workspace.h"
#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/spatial/forward.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/spatial/tile-inl.h"
#include "attention/vector/skip-inl.h"
#include "attention/vector/softmax-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and its softmax state. Float arrays have one entry per query lane.
struct SpatialRunning {
  SpatialBlock block;
  float* queries;  ///< [head_dim][query_rows]
  float* out;      ///< [head_dim][query_rows]: sum of exp2(score - max) v
  float *max, *sum, *sum_low;
  float *norms, *products, *shares;  ///< of the queries, for the skip rule
  bool skips = false;                ///< whether the rule applies
  float norm = 0;                    ///< bound of the norms of the keys and of their centre
  RemainingWeights remaining;
  std::vector<PenaltyStep> steps;  ///< [key blocks]
  int stop = penalty_steps;        ///< key blocks from this step on are not visited
};

class SpatialForward {
 public:
  SpatialForward(const SpatialProblem& problem, const SpatialTask& task, const SpatialBounds* bounds)
      : problem_(problem),
        base_(problem.base),
        task_(task),
        bounds_(bounds),
        sequence_(problem.base.sequences[task.sequence]),
        keys_(*problem.sequences[task.sequence].keys),
        kv_head_(task.heads.begin / problem.base.group()),
        stride_(round_up(problem.base.head_dim, 16)) {
    const int64_t blocks = task.heads.size() * task.blocks.size();
    const int64_t floats = blocks * (2 * stride_ + 6 + most_dims) * query_rows + (2 * stride_ + query_rows) * key_rows +
                           (stride_ + 1) * query_rows;
    Workspace workspace = Workspace::take(static_cast<size_t>(floats));
    key_rows_ = workspace.part(key_rows * stride_);
    value_rows_ = workspace.part(key_rows * stride_);
    scores_ = workspace.part(key_rows * query_rows);
    rows_ = workspace.part(query_rows * stride_);
    factor_ = workspace.part(query_rows);
    running_.reserve(static_cast<size_t>(blocks));
    for (int64_t head = task.heads.begin; head < task.heads.end; ++head) {
      for (int64_t block = task.blocks.begin; block < task.blocks.end; ++block) start(head, block, workspace);
    }
  }

  void run(AttentionStats& stats) {
    stats.blocks_total += keys_.size() * static_cast<int64_t>(running_.size());
    const std::vector<int32_t> order = near_to_far();
    for (size_t at = 0; at < order.size(); ++at) {
      bool loaded = false;
      for (SpatialRunning& r : running_) {
        if (is_skipped(r, order[at])) continue;
        if (!loaded) {
          load(order[at]);
          prefetch_next(order, at + 1);
          loaded = true;
        }
        fold(r, order[at]);
        ++stats.blocks_visited;
      }
    }
  }

  void finish(AttentionPositionsState* state) {
    for (const SpatialRunning& r : running_) write_rows(r, state);
  }

 private:
  void start(int64_t head, int64_t block, Workspace& workspace) {
    SpatialRunning& r = running_.emplace_back();
    r.block.coordinates = workspace.part(most_dims * query_rows);
    r.queries = workspace.part(stride_ * query_rows);
    r.out = workspace.part(stride_ * query_rows);
    for (float** part : {&r.max, &r.sum, &r.sum_low, &r.norms, &r.products, &r.shares}) {
      *part = workspace.part(query_rows);
      std::fill_n(*part, query_rows, 0.0f);
    }
    r.block.start(problem_, task_.sequence, head, block);
    gather_queries(base_, base_.q, sequence_, r.block.rows, r.block.count(), head, rows_, stride_, r.queries);
    std::fill_n(r.out, stride_ * query_rows, 0.0f);
    std::fill_n(r.max, query_rows, -std::numeric_limits<float>::infinity());
    r.skips = bounds_ != nullptr && r.block.slope > 0;
    r.steps.resize(static_cast<size_t>(keys_.size()));
    if (r.skips) measure(r);
  }

  /// Computes the data of the queries in rows_ that the skip rule needs.
  void measure(SpatialRunning& r) const {
    const SpatialBounds::Head keys = bounds_->head(task_.sequence, r.block.head);
    const float unit = std::abs(base_.scale) * std::numbers::log2e_v<float>;
    float least = std::numeric_limits<float>::infinity(), most = 0;
    for (int64_t x = 0; x < r.block.count(); ++x) {
      const float* query = rows_ + x * stride_;
      r.norms[x] = norm_bound(query, stride_);
      least = std::min(least, unit * r.norms[x]);
      most = std::max(most, unit * r.norms[x]);
      if (keys.of_queries.centre_norm != 0)
        r.products[x] = scaled_product(base_, query, keys.of_queries.centre, stride_);
    }
    const Levels levels = keys.of_queries.levels_of(least, most);
    for (int64_t x = 0; x < r.block.count(); ++x) r.shares[x] = levels.share(unit * r.norms[x]);
    r.norm = keys.norm + keys.of_queries.centre_norm;
    std::vector<double> penalties(r.steps.size());
    measure_penalties(keys_, r.block.box(), problem_.distance, r.block.slope, r.steps.data(), penalties.data());
    r.remaining.measure(keys, levels, r.steps, penalties);
  }

  /// The key blocks by rising penalty, for the head with the largest slope.
  std::vector<int32_t> near_to_far() const {
    const auto blocks = static_cast<size_t>(keys_.size());
    std::vector<PenaltyStep> steps(blocks);
    const SpatialBlock* steepest = &running_.front().block;
    for (const SpatialRunning& r : running_) {
      if (r.block.slope > steepest->slope) steepest = &r.block;
    }
    Box box = steepest->tokens->box;
    for (const SpatialRunning& r : running_) box.add(r.block.tokens->box, keys_.dims);
    measure_penalties(keys_, steepest->leading ? nullptr : &box, problem_.distance, steepest->slope, steps.data(),
                      nullptr);
    std::vector<int32_t> next(penalty_steps + 1, 0), order(blocks);
    for (const PenaltyStep step : steps) ++next[step + size_t{1}];
    for (size_t step = 0; step < penalty_steps; ++step) next[step + 1] += next[step];
    for (size_t block = 0; block < blocks; ++block) {
      order[static_cast<size_t>(next[steps[block]]++)] = static_cast<int32_t>(block);
    }
    return order;
  }

  /// Whether a key block, and all others from its step on, are negligible.
  bool is_skipped(SpatialRunning& r, int32_t key_block) const {
    if (!r.skips) return false;
    const PenaltyStep step = r.steps[static_cast<size_t>(key_block)];
    if (step >= r.stop) return true;
    HWY_ALIGN static constexpr float beyond[query_rows] = {};  // penalties are in the chord
    const RemainingKeys remaining = remaining_keys(base_, r.remaining.from(step), 0, 0, r.norm);
    const RunningRows rows = {r.norms, r.products, r.shares, r.max, r.sum, r.sum_low};
    if (!negligible(base_, r.block.count(), remaining, beyond, rows)) return false;
    r.stop = step;
    return true;
  }

  const int32_t* rows_of(int32_t key_block) const {
    return &keys_.rows[static_cast<size_t>(keys_.blocks[static_cast<size_t>(key_block)].begin)];
  }

  void load(int32_t key_block) {
    const int64_t count = keys_.blocks[static_cast<size_t>(key_block)].count;
    gather_keys(base_, base_.k, sequence_, rows_of(key_block), count, kv_head_, key_rows_, stride_);
    gather_keys(base_, base_.v, sequence_, rows_of(key_block), count, kv_head_, value_rows_, stride_);
  }

  void prefetch_next(const std::vector<int32_t>& order, size_t at) {
    for (; at < order.size(); ++at) {
      for (const SpatialRunning& r : running_) {
        if (r.skips && r.steps[static_cast<size_t>(order[at])] >= r.stop) continue;
        prefetcher_.start(base_, sequence_, rows_of(order[at]), keys_.blocks[static_cast<size_t>(order[at])].count,
                          kv_head_);
        return;
      }
    }
  }

  void fold(SpatialRunning& r, int32_t key_block) {
    const Floats f;
    const Seen seen(r.block.count(), keys_.blocks[static_cast<size_t>(key_block)].count);
    make_spatial_scores(problem_, keys_, r.block, key_block, r.queries, key_rows_, stride_, seen, prefetcher_, scores_);
    if (raise_max(scores_, seen, r.max, factor_)) {
      for (int64_t i = 0; i < base_.head_dim; ++i) {
        float* at = r.out + i * query_rows;
        for (int64_t c = 0; c < seen.rows; c += lanes) {
          hn::Store(hn::Mul(hn::Load(f, at + c), hn::Load(f, factor_ + c)), f, at + c);
        }
      }
    }
    make_weights(scores_, seen, factor_, r.max, r.sum, r.sum_low);
    multiply<Left::columns>(value_rows_, stride_, scores_, query_rows, seen.rows, SumsOfKeys{seen, base_.head_dim},
                            prefetcher_, Add{r.out, query_rows});
  }

  void write_rows(const SpatialRunning& r, AttentionPositionsState* state) const {
    transpose(r.out, query_rows, rows_, stride_, round_up(base_.head_dim, 4), round_up(r.block.count(), 4));
    for (int64_t x = 0; x < r.block.count(); ++x) {
      const int64_t query_row = sequence_.query_begin + r.block.rows[x];
      const double sum = static_cast<double>(r.sum[x]) + static_cast<double>(r.sum_low[x]);
      const float inverse = sum == 0 ? 0.0f : 1 / static_cast<float>(sum);
      store_row(base_, rows_ + x * stride_, inverse, base_.out, sequence_.batch, query_row, r.block.head);
      if (state == nullptr) continue;
      const int64_t at = (sequence_.batch * base_.heads + r.block.head) * base_.queries + query_row;
      const double log_sum = static_cast<double>(r.max[x]) + std::log2(sum);
      const auto lse = static_cast<float>(log_sum * std::numbers::ln2);
      state->lse.data<float>()[at] = lse;
      state->lse_low.data<float>()[at] =
          sum > 0 ? static_cast<float>(log_sum - static_cast<double>(in_log2(lse))) : 0.0f;
    }
    if (state == nullptr) return;
    state->stops.data<int32_t>()[problem_.stop_index(task_.sequence, r.block.head, r.block.index)] = r.stop;
  }

  const SpatialProblem& problem_;
  const Problem& base_;
  const SpatialTask& task_;
  const SpatialBounds* bounds_;
  const Sequence& sequence_;
  const TokenOrder& keys_;
  int64_t kv_head_;
  int64_t stride_;
  float *key_rows_, *value_rows_;  ///< [key_rows][stride_]
  float* scores_;                  ///< [key_rows][query_rows]
  float* rows_;                    ///< [query_rows][stride_]
  float* factor_;                  ///< [query_rows]
  GatherPrefetcher prefetcher_;
  std::vector<SpatialRunning> running_;
};

}  // namespace

AttentionStats forward_spatial_task(const SpatialProblem& problem, const SpatialTask& spatial_task,
                                    const SpatialBounds* bounds, AttentionPositionsState* state) {
  const FlushDenormals flush;
  AttentionStats stats;
  SpatialForward task(problem, spatial_task, bounds);
  task.run(stats);
  task.finish(state);
  return stats;
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(forward_spatial_task);

AttentionStats spatial_forward_task(const SpatialProblem& problem, const SpatialTask& task, const SpatialBounds* bounds,
                                    AttentionPositionsState* state) {
  return HWY_DYNAMIC_DISPATCH(forward_spatial_task)(problem, task, bounds, state);
}

}  // namespace alibi::kernels
#endif
