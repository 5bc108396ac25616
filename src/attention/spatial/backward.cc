// Backward attention with given positions; the formulas are those of vector/backward.cc. The slope m of a head gets
// dm = -sum of dS * distance.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/spatial/spatial.h"
#include "attention/workspace.h"
#include "core/memory.h"
#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/spatial/backward.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/spatial/tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and what the backward pass needs for it.
struct SpatialBlockGradients {
  SpatialBlock block;
  float *q, *q_lanes;        ///< [query_rows][stride], [head_dim][query_rows]
  float *dout, *dout_lanes;  ///< same layouts as for q
  float* dq_lanes;           ///< [head_dim][query_rows]
  float* lse;                ///< for each lane, in log2 units; +infinity makes all weights of a lane zero
  float* lse_low;            ///< the rounding error of lse
  float* delta;
  std::vector<PenaltyStep> steps;  ///< [key blocks]
  int stop = penalty_steps;        ///< key blocks from this step on were not visited
};

/// The query blocks of a task.
class SpatialBackward {
 public:
  SpatialBackward(const SpatialProblem& problem, const AttentionPositionsState& state, SpatialChunk& chunk,
                  const Range& heads, const Range& blocks)
      : problem_(problem),
        base_(problem.base),
        chunk_(chunk),
        sequence_(problem.base.sequences[chunk.sequence]),
        keys_(*problem.sequences[chunk.sequence].keys),
        stride_(round_up(problem.base.head_dim, 16)) {
    const int64_t count = heads.size() * blocks.size();
    const int64_t floats = count * (5 * stride_ + 3 + most_dims) * query_rows +
                           (2 * stride_ + 3 * query_rows) * key_rows + stride_ * query_rows;
    Workspace workspace = Workspace::take(static_cast<size_t>(floats));
    key_rows_ = workspace.part(key_rows * stride_);
    value_rows_ = workspace.part(key_rows * stride_);
    weights_ = workspace.part(key_rows * query_rows);
    dscores_ = workspace.part(key_rows * query_rows);
    distances_ = workspace.part(key_rows * query_rows);
    rows_ = workspace.part(query_rows * stride_);
    blocks_.reserve(static_cast<size_t>(count));
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      for (int64_t block = blocks.begin; block < blocks.end; ++block) start(state, head, block, workspace);
    }
  }

  void run() {
    for (int64_t key_block = 0; key_block < keys_.size(); ++key_block) {
      bool loaded = false;
      for (SpatialBlockGradients& b : blocks_) {
        if (b.steps[static_cast<size_t>(key_block)] >= b.stop) continue;
        if (!loaded) {
          load(key_block);
          loaded = true;
        }
        fold(b, key_block);
      }
    }
    for (const SpatialBlockGradients& b : blocks_) write_query_gradients(b);
  }

 private:
  void start(const AttentionPositionsState& state, int64_t head, int64_t index, Workspace& workspace) {
    SpatialBlockGradients& b = blocks_.emplace_back();
    b.block.coordinates = workspace.part(most_dims * query_rows);
    for (float** part : {&b.q, &b.q_lanes, &b.dout, &b.dout_lanes, &b.dq_lanes}) {
      *part = workspace.part(stride_ * query_rows);
    }
    b.lse = workspace.part(query_rows);
    b.lse_low = workspace.part(query_rows);
    b.delta = workspace.part(query_rows);
    b.block.start(problem_, chunk_.sequence, head, index);
    const int64_t count = b.block.count();
    const auto gather = [&](const TensorView& from, float* rows, float* transposed) {
      gather_queries(base_, from, sequence_, b.block.rows, count, head, rows, stride_, transposed);
    };
    gather(base_.q, b.q, b.q_lanes);
    gather(base_.dout, b.dout, b.dout_lanes);
    std::fill_n(b.lse, query_rows, std::numeric_limits<float>::infinity());
    std::fill_n(b.lse_low, query_rows, 0.0f);
    const int64_t first = (sequence_.batch * base_.heads + head) * base_.queries + sequence_.query_begin;
    const float *const lse = state.lse.data<float>() + first, *const lse_low = state.lse_low.data<float>() + first;
    for (int64_t x = 0; x < count; ++x) {
      const float of_row = lse[b.block.rows[x]];
      if (of_row == -std::numeric_limits<float>::infinity()) continue;
      b.lse[x] = in_log2(of_row);
      b.lse_low[x] = lse_low[b.block.rows[x]];
    }
    // delta = rowsum(dout out), summed in the same order as dout v'.
    float* const out_lanes = b.dq_lanes;
    gather(base_.out, rows_, out_lanes);
    const Floats f;
    for (int64_t c = 0; c < query_rows; c += lanes) {
      Float sum = hn::Zero(f);
      for (int64_t i = 0; i < base_.head_dim && c < count; ++i) {
        const int64_t at = i * query_rows + c;
        sum = hn::MulAdd(hn::Load(f, out_lanes + at), hn::Load(f, b.dout_lanes + at), sum);
      }
      hn::Store(sum, f, b.delta + c);
    }
    std::fill_n(b.dq_lanes, stride_ * query_rows, 0.0f);
    b.steps.resize(static_cast<size_t>(keys_.size()));
    measure_penalties(keys_, b.block.box(), problem_.distance, b.block.slope, b.steps.data(), nullptr);
    b.stop = state.stops.data<int32_t>()[problem_.stop_index(chunk_.sequence, head, index)];
  }

  void load(int64_t key_block) {
    const TokenBlock& tokens = keys_.blocks[static_cast<size_t>(key_block)];
    const int32_t* const rows = &keys_.rows[static_cast<size_t>(tokens.begin)];
    gather_keys(base_, base_.k, sequence_, rows, tokens.count, chunk_.kv_head, key_rows_, stride_);
    gather_keys(base_, base_.v, sequence_, rows, tokens.count, chunk_.kv_head, value_rows_, stride_);
    if (key_block + 1 < keys_.size()) {
      const TokenBlock& next = keys_.blocks[static_cast<size_t>(key_block + 1)];
      prefetcher_.start(base_, sequence_, &keys_.rows[static_cast<size_t>(next.begin)], next.count, chunk_.kv_head);
    }
    std::shared_ptr<float>& sums = chunk_.sums[static_cast<size_t>(key_block)];
    if (sums != nullptr) return;
    const auto floats = static_cast<size_t>(2 * key_rows * stride_);
    const std::shared_ptr<void> memory = core::allocate(floats * sizeof(float), true);
    sums = {memory, static_cast<float*>(memory.get())};
  }

  /// Replaces scores by weights = exp2(score - lse), and dscores from dout v' to weight * (dout v' - delta).
  void softmax_gradient(const SpatialBlockGradients& b, const Seen& seen) const {
    const Floats f;
    for (int64_t y = 0; y < seen.keys; ++y) {
      for (int64_t c = 0; c < seen.rows; c += lanes) {
        float* const weight_at = weights_ + y * query_rows + c;
        float* const dscore_at = dscores_ + y * query_rows + c;
        const Float near = hn::Sub(hn::Load(f, weight_at), hn::Load(f, b.lse + c));
        const Float weight = exp2_of(hn::Sub(near, hn::Load(f, b.lse_low + c)));
        hn::Store(weight, f, weight_at);
        hn::Store(hn::Mul(weight, hn::Sub(hn::Load(f, dscore_at), hn::Load(f, b.delta + c))), f, dscore_at);
      }
    }
    const int64_t padding = (round_up(seen.keys, tile_rows) - seen.keys) * query_rows;
    std::fill_n(weights_ + seen.keys * query_rows, padding, 0.0f);
    std::fill_n(dscores_ + seen.keys * query_rows, padding, 0.0f);
  }

  /// Adds the gradients from one key block and one query block.
  void fold(SpatialBlockGradients& b, int64_t key_block) {
    const Seen seen(b.block.count(), keys_.blocks[static_cast<size_t>(key_block)].count);
    float* const dk = chunk_.sums[static_cast<size_t>(key_block)].get();
    float* const dv = dk + key_rows * stride_;
    make_spatial_scores(problem_, keys_, b.block, key_block, b.q_lanes, key_rows_, stride_, seen, prefetcher_,
                        weights_);
    multiply<Left::rows>(value_rows_, stride_, b.dout_lanes, query_rows, seen.rows, KeysByLanes{seen, base_.head_dim},
                         prefetcher_, Store{dscores_, query_rows});
    softmax_gradient(b, seen);
    multiply<Left::rows>(weights_, query_rows, b.dout, stride_, base_.head_dim, SumsOfLanes{seen}, prefetcher_,
                         Add{dv, stride_});
    multiply<Left::rows>(dscores_, query_rows, b.q, stride_, base_.head_dim, SumsOfLanes{seen}, prefetcher_,
                         Add{dk, stride_});
    multiply<Left::columns>(key_rows_, stride_, dscores_, query_rows, seen.rows, SumsOfKeys{seen, base_.head_dim},
                            prefetcher_, Add{b.dq_lanes, query_rows});
    if (!chunk_.dslopes.empty() && !b.block.leading && !keys_.is_leading(key_block)) add_slope_gradient(b, key_block);
  }

  void add_slope_gradient(const SpatialBlockGradients& b, int64_t key_block) {
    const Floats f;
    const int64_t count = keys_.blocks[static_cast<size_t>(key_block)].count;
    fill_tile(problem_, keys_, b.block, key_block, 1, distances_);
    Float sum = hn::Zero(f);
    for (int64_t y = 0; y < count; ++y) {
      for (int64_t c = 0; c < b.block.count(); c += lanes) {
        const auto lane = hn::Lt(hn::Iota(f, static_cast<float>(c)), hn::Set(f, static_cast<float>(b.block.count())));
        const int64_t at = y * query_rows + c;
        const Float part = hn::Mul(hn::Load(f, distances_ + at), hn::Load(f, dscores_ + at));
        sum = hn::Add(sum, hn::IfThenElseZero(lane, part));
      }
    }
    chunk_.dslopes[static_cast<size_t>(b.block.head % base_.group())] -=
        static_cast<double>(hn::GetLane(hn::SumOfLanes(f, sum)));
  }

  void write_query_gradients(const SpatialBlockGradients& b) const {
    transpose(b.dq_lanes, query_rows, rows_, stride_, round_up(base_.head_dim, 4), round_up(b.block.count(), 4));
    for (int64_t x = 0; x < b.block.count(); ++x) {
      store_row(base_, rows_ + x * stride_, base_.scale, base_.dq, sequence_.batch,
                sequence_.query_begin + b.block.rows[x], b.block.head);
    }
  }

  const SpatialProblem& problem_;
  const Problem& base_;
  SpatialChunk& chunk_;
  const Sequence& sequence_;
  const TokenOrder& keys_;
  int64_t stride_;
  float *key_rows_, *value_rows_;           ///< [key_rows][stride_]
  float *weights_, *dscores_, *distances_;  ///< [key_rows][query_rows]
  float* rows_;                             ///< [query_rows][stride_]
  GatherPrefetcher prefetcher_;
  std::vector<SpatialBlockGradients> blocks_;
};

}  // namespace

void backward_spatial_chunk(const SpatialProblem& problem, const AttentionPositionsState& state, SpatialChunk& chunk) {
  const FlushDenormals flush;
  const TokenOrder& queries = *problem.sequences[chunk.sequence].queries;
  for_each_spatial_task(problem.base, queries, chunk.kv_head, chunk.blocks,
                        [&](const Range& heads, const Range& blocks)
                            HWY_ATTR { SpatialBackward(problem, state, chunk, heads, blocks).run(); });
}

void write_spatial_key_gradients(const SpatialProblem& problem, const std::vector<SpatialChunk>& chunks,
                                 int64_t key_block) {
  const FlushDenormals flush;
  const Floats f;
  const SpatialChunk& first = chunks.front();
  const Problem& base = problem.base;
  const Sequence& sequence = base.sequences[first.sequence];
  const TokenOrder& keys = *problem.sequences[first.sequence].keys;
  const TokenBlock& tokens = keys.blocks[static_cast<size_t>(key_block)];
  const int64_t stride = round_up(base.head_dim, 16), half = key_rows * stride;
  Workspace workspace = Workspace::take(static_cast<size_t>(2 * half));
  float* const total = workspace.part(2 * half);
  std::fill_n(total, 2 * half, 0.0f);
  for (const SpatialChunk& chunk : chunks) {
    const float* const part = chunk.sums[static_cast<size_t>(key_block)].get();
    for (int64_t i = 0; part != nullptr && i < 2 * half; i += lanes) {
      hn::Store(hn::Add(hn::Load(f, total + i), hn::Load(f, part + i)), f, total + i);
    }
  }
  for (int64_t y = 0; y < tokens.count; ++y) {
    const int64_t row = sequence.key_begin + keys.rows[static_cast<size_t>(tokens.begin + y)];
    store_row(base, total + y * stride, base.scale, base.dk, sequence.batch, row, first.kv_head);
    store_row(base, total + half + y * stride, 1, base.dv, sequence.batch, row, first.kv_head);
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(backward_spatial_chunk);
HWY_EXPORT(write_spatial_key_gradients);

void spatial_backward_chunk(const SpatialProblem& problem, const AttentionPositionsState& state, SpatialChunk& chunk) {
  HWY_DYNAMIC_DISPATCH(backward_spatial_chunk)(problem, state, chunk);
}

void spatial_write_key_gradients(const SpatialProblem& problem, const std::vector<SpatialChunk>& chunks,
                                 int64_t key_block) {
  HWY_DYNAMIC_DISPATCH(write_spatial_key_gradients)(problem, chunks, key_block);
}

}  // namespace alibi::kernels
#endif
