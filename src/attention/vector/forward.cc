// Forward attention in float32 arithmetic, for any instruction set.
//
// A task holds a few query blocks that read the same key/value head. It goes through the key blocks once, from the
// diagonal outwards, and folds each into every query block that sees it (online softmax, Milakov & Gimelshein 2018).
// Within a block everything is transposed: vectors run across queries, so a row's maximum, sum and bias are lanes, keys
// and values are used as they lie in memory, and no reduction crosses lanes.
#include <algorithm>
#include <atomic>
#include <vector>

#include "attention/blocks.h"
#include "attention/kernel_state.h"
#include "attention/skip.h"
#include "attention/vector/kernel.h"
#include "core/parallel.h"
#include "core/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/vector/forward.cc"
#include "hwy/foreach_target.h"
// Highway's order: foreach_target.h first.
#include "attention/vector/scores-inl.h"
#include "attention/vector/skip-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and its softmax so far. All arrays have one entry per query lane.
struct Running {
  QueryBlock block;
  float* queries;                                ///< [head_dim][query_rows]
  float* out;                                    ///< [head_dim][query_rows]: sum of exp2(score - max) v
  float* max;                                    ///< of the scores so far, log2 units; starts at -infinity
  float* sum;                                    ///< of exp2(score - max)
  float* sum_low;                                ///< what rounding took from sum
  float* norms;                                  ///< bounds on the queries' norms, for the skip rule
  uint32_t* query_keys;                          ///< dropout
  int64_t first = 0, last = 0;                   ///< key blocks visited
  bool done_before = false, done_after = false;  ///< nothing more to visit in that direction
};

/// New maximum of each lane, the factor that brings sums of the old maximum to the new one, and whether any is not 1.
bool RaiseMax(const float* scores, const Seen& seen, float* max, float* factor) {
  const Floats f;
  bool raised = false;
  ForGroups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.Keys(n * lanes, width * lanes);
    for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
      const Float old = hn::Load(f, max + c);
      constexpr int64_t parts = 4;  // maxima that need not wait for each other
      Float tops[parts] = {old, old, old, old};
      int64_t y = keys.begin;
      const auto take = [&](Float& top, int64_t at)
                            HWY_ATTR { top = hn::Max(hn::Load(f, scores + at * query_rows + c), top); };
      for (; y + parts <= keys.end; y += parts) {
        HWY_UNROLL(4)
        for (int64_t part = 0; part < parts; ++part) take(tops[part], y + part);
      }
      for (; y < keys.end; ++y) take(tops[0], y);
      const Float top = hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]));
      const auto none = hn::Eq(top, hn::Set(f, -std::numeric_limits<float>::infinity()));
      const Float alpha = hn::IfThenElse(none, hn::Set(f, 1.0f), Exp2(hn::Sub(old, top)));
      raised |= !hn::AllTrue(f, hn::Eq(old, top));
      hn::Store(top, f, max + c);
      hn::Store(alpha, f, factor + c);
    }
  });
  return raised;
}

/// scores become weights exp2(score - max), and sum takes them in.
void Weights(float* scores, const Seen& seen, const float* factor, Running& running) {
  const Floats f;
  ForGroups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.Keys(n * lanes, width * lanes);
    ZeroUnseen(scores, n * lanes, width * lanes, keys, seen.keys);
    for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
      const Float top = hn::Load(f, running.max + c);
      const auto none = hn::Eq(top, hn::Set(f, -std::numeric_limits<float>::infinity()));
      const Float shift = hn::IfThenZeroElse(none, top);
      Float sum = hn::Zero(f);
      for (int64_t y = keys.begin; y < keys.end; ++y) {
        float* at = scores + y * query_rows + c;
        const Float weight = Exp2(hn::Sub(hn::Load(f, at), shift));
        sum = hn::Add(sum, weight);
        hn::Store(weight, f, at);
      }
      // Two-sum: the running sum must stay exact over a million keys.
      const Float alpha = hn::Load(f, factor + c);
      const Float old = hn::Mul(hn::Load(f, running.sum + c), alpha);
      const Float total = hn::Add(old, sum);
      const Float part = hn::Sub(total, old);
      const Float lost = hn::Add(hn::Sub(old, hn::Sub(total, part)), hn::Sub(sum, part));
      hn::Store(total, f, running.sum + c);
      hn::Store(hn::MulAdd(hn::Load(f, running.sum_low + c), alpha, lost), f, running.sum_low + c);
    }
  });
}

void DropWeights(const Problem& problem, const Sequence& sequence, int64_t key, int64_t count, const Running& running,
                 float* weights) {
  const Floats f;
  const DropoutMask mask(problem.dropout_seed, sequence.batch, running.block.head);
  const uint32_t threshold = DropoutMask::threshold(problem.dropout);
  for (int64_t pair = 0; pair < count; pair += 2) {
    const uint32_t pair_key = mask.pair_key(sequence.key_begin + key + pair);
    for (int64_t c = 0; c < running.block.rows; c += lanes) {
      const auto bits = DropoutBits(running.query_keys + c, pair_key);
      for (int64_t y = pair; y < std::min(pair + 2, count); ++y) {
        float* at = weights + y * query_rows + c;
        hn::Store(hn::IfThenZeroElse(Dropped(bits, y > pair, threshold), hn::Load(f, at)), f, at);
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
  Ramp ramp;
  Upcoming upcoming;  ///< keys and values of the next tile
};

/// Takes the keys [key, key + count) into a query block.
void Fold(const Problem& problem, const Sequence& sequence, int64_t key, int64_t stride, TileBuffers& tile,
          Running& running) {
  const Floats f;
  const QueryBlock& block = running.block;
  const int64_t count = std::min(key_rows, block.key_end - key);
  FillRamp(block, key, tile.ramp);
  const Seen seen(block, key, count, tile.ramp);
  Scores(problem, block, running.queries, tile.keys, stride, seen, tile.ramp, tile.upcoming, tile.scores);
  if (RaiseMax(tile.scores, seen, running.max, tile.factor)) {
    for (int64_t i = 0; i < problem.head_dim; ++i) {
      float* at = running.out + i * query_rows;
      for (int64_t c = 0; c < block.rows; c += lanes) {
        hn::Store(hn::Mul(hn::Load(f, at + c), hn::Load(f, tile.factor + c)), f, at + c);
      }
    }
  }
  Weights(tile.scores, seen, tile.factor, running);
  if (problem.dropout > 0) DropWeights(problem, sequence, key, count, running, tile.scores);
  if (tile.ramp.masked && !AllFinite(tile.values, count * stride)) {
    AddCarefully(tile.values, stride, tile.scores, count, problem.head_dim, block.rows, running.out);
    return;
  }
  Product<Left::columns>(tile.values, stride, tile.scores, query_rows, block.rows, SumsOfKeys{seen, problem.head_dim},
                         tile.upcoming, Add{running.out, query_rows});
}

/// Divides by the sums and writes the block's rows and log-sum-exps.
void WriteRows(const Problem& problem, const Sequence& sequence, int64_t stride, float* rows, const Running& running,
               AttentionState* state) {
  const QueryBlock& block = running.block;
  const float kept = DropoutMask::scale(problem.dropout);
  Transpose(running.out, query_rows, rows, stride, round_up(problem.head_dim, 4), round_up(block.rows, 4));
  for (int64_t x = 0; x < block.rows; ++x) {
    const int64_t query_row = sequence.query_begin + block.row + x;
    const double sum = static_cast<double>(running.sum[x]) + static_cast<double>(running.sum_low[x]);
    const float inverse = sum == 0 ? 0.0f : kept / static_cast<float>(sum);
    StoreRow(problem, rows + x * stride, inverse, problem.out, sequence.batch, query_row, block.head);
    if (state == nullptr) continue;
    const int64_t at = (sequence.batch * problem.heads + block.head) * problem.queries + query_row;
    const double near = (static_cast<double>(running.max[x]) + std::log2(sum)) * std::numbers::ln2;
    const int64_t nearest = block.nearest(x);
    const float slope = block.position + x < 0 ? block.bias.slope_after : block.bias.slope_before;
    const double shift = nearest > 0 ? static_cast<double>(slope) * static_cast<double>(nearest) : 0.0;
    state->kernel.state().lse.data<float>()[at] = static_cast<float>(near);
    state->lse.data<float>()[at] = static_cast<float>(near - shift);
  }
}

/// The query blocks of a task, ready for their first keys.
class Task {
 public:
  Task(const Problem& problem, const QueryTask& task, const KeyNorms& norms)
      : problem_(problem),
        task_(task),
        norms_(norms),
        sequence_(problem.sequences[task.sequence]),
        kv_head_(task.head_begin / problem.group()),
        stride_(round_up(problem.head_dim, 16)) {
    const int64_t blocks = (task.head_end - task.head_begin) * ceil_div(task.row_end - task.row_begin, query_rows);
    const int64_t floats =
        blocks * (2 * stride_ + 5) * query_rows + (2 * stride_ + query_rows) * key_rows + stride_ * query_rows;
    Workspace workspace = Workspace::take(static_cast<size_t>(floats));
    tile_.keys = workspace.part(key_rows * stride_);
    tile_.values = workspace.part(key_rows * stride_);
    tile_.scores = workspace.part(key_rows * query_rows);
    rows_ = workspace.part(query_rows * stride_);
    running_.reserve(static_cast<size_t>(blocks));
    for (int64_t head = task.head_begin; head < task.head_end; ++head) {
      for (int64_t row = task.row_begin; row < task.row_end; row += query_rows) {
        running_.push_back(Start(query_block_at(problem, sequence_, head, row), workspace));
      }
    }
  }

  /// Visits the keys, from the diagonal backwards and then forwards.
  void Run(AttentionStats& stats) {
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (const Running& r : running_) {
      if (r.block.first == r.block.last) continue;
      first = std::min(first, r.block.first);
      last = std::max(last, r.block.last);
      stats.blocks_total += r.block.last - r.block.first;
    }
    if (first >= last) return;
    const int64_t position = sequence_.query_offset + task_.row_end - 1;
    const int64_t diagonal = std::clamp(position < 0 ? 0 : position / key_rows, first, last - 1);
    bool more = true;
    for (int64_t key_block = diagonal; more && key_block >= first; --key_block) {
      more = Visit(key_block, /*before=*/true, stats);
    }
    more = true;
    for (int64_t key_block = diagonal + 1; more && key_block < last; ++key_block) {
      more = Visit(key_block, /*before=*/false, stats);
    }
  }

  void Finish(AttentionState* state, const BlockIndex& index) {
    for (Running& r : running_) {
      WriteRows(problem_, sequence_, stride_, rows_, r, state);
      if (state == nullptr || state->kernel.state().first_block.empty()) continue;
      const auto at = static_cast<size_t>(index.at(task_.sequence, r.block.head, r.block.row));
      state->kernel.state().first_block[at] = static_cast<int32_t>(r.first);
      state->kernel.state().last_block[at] = static_cast<int32_t>(r.last);
    }
  }

 private:
  Running Start(const QueryBlock& block, Workspace& workspace) {
    Running running;
    running.block = block;
    running.queries = workspace.part(stride_ * query_rows);
    running.out = workspace.part(stride_ * query_rows);
    running.max = workspace.part(query_rows);
    running.sum = workspace.part(query_rows);
    running.sum_low = workspace.part(query_rows);
    running.norms = workspace.part(query_rows);
    running.query_keys = reinterpret_cast<uint32_t*>(workspace.part(query_rows));
    LoadQueries(problem_, problem_.q, sequence_, block, rows_, stride_, running.queries);
    std::fill_n(running.out, stride_ * query_rows, 0.0f);
    std::fill_n(running.max, query_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(running.sum, query_rows, 0.0f);
    std::fill_n(running.sum_low, query_rows, 0.0f);
    if (!norms_.empty()) {
      std::fill_n(running.norms, query_rows, 0.0f);
      for (int64_t x = 0; x < block.rows; ++x) running.norms[x] = NormBound(rows_ + x * stride_, stride_);
    }
    if (problem_.dropout > 0) {
      const DropoutMask mask(problem_.dropout_seed, sequence_.batch, block.head);
      for (int64_t x = 0; x < query_rows; ++x) {
        running.query_keys[x] = mask.query_key(sequence_.query_begin + block.row + x);
      }
    }
    return running;
  }

  /// True once the keys from this block on, away from the diagonal, cannot matter.
  bool Done(const Running& r, int64_t key_block, bool before) const {
    if (norms_.empty()) return false;
    const QueryBlock& block = r.block;
    const float budget = skip_budget(problem_);
    Remaining remaining;
    if (before) {
      const int64_t end = (key_block + 1) * key_rows;  // keys before it remain
      if (end > block.position) return false;
      remaining = {.norm = norms_.before(task_.sequence, kv_head_, key_block + 1),
                   .slope = block.bias.slope_before,
                   .keys = end - block.key_begin,
                   .distance = std::min(block.position, block.keys - 1) - (end - 1),
                   .step = block.outside ? 0 : 1};
    } else {
      const int64_t begin = key_block * key_rows;  // keys from it on remain
      const int64_t last = block.position + block.rows - 1;
      if (begin <= last) return false;
      remaining = {.norm = norms_.from(task_.sequence, kv_head_, key_block),
                   .slope = block.bias.slope_after,
                   .keys = block.key_end - begin,
                   .distance = begin - std::max<int64_t>(block.outside ? last : block.position, 0),
                   .step = block.outside ? 0 : -1};
    }
    return MaySkip(problem_, block, remaining, budget, r.norms, r.max, r.sum);
  }

  /// Takes a key block into the query blocks that still want it; false if none wants any further in that direction.
  bool Visit(int64_t key_block, bool before, AttentionStats& stats) {
    const int64_t key = key_block * key_rows;
    bool loaded = false;
    bool more = false;
    for (Running& r : running_) {
      bool& done = before ? r.done_before : r.done_after;
      if (before ? key_block < r.block.first : key_block >= r.block.last) done = true;
      if (done) continue;
      more = true;
      if (before ? key_block >= r.block.last : key_block < r.block.first) continue;
      if (Done(r, key_block, before)) {
        done = true;
        continue;
      }
      if (!loaded) {
        const int64_t count = std::min(key_rows, sequence_.keys - key);
        LoadKeys(problem_, problem_.k, sequence_, key, count, kv_head_, tile_.keys, stride_);
        LoadKeys(problem_, problem_.v, sequence_, key, count, kv_head_, tile_.values, stride_);
        const int64_t next = before ? key - key_rows : key + key_rows;
        if (next >= 0 && next < sequence_.keys) {
          tile_.upcoming.Start(problem_, sequence_, next, std::min(key_rows, sequence_.keys - next), kv_head_);
        }
        loaded = true;
      }
      Fold(problem_, sequence_, key, stride_, tile_, r);
      if (r.first == r.last) r.first = r.last = key_block;
      r.first = std::min(r.first, key_block);
      r.last = std::max(r.last, key_block + 1);
      ++stats.blocks_visited;
    }
    return more;
  }

  const Problem& problem_;
  const QueryTask& task_;
  const KeyNorms& norms_;
  const Sequence& sequence_;
  int64_t kv_head_;
  int64_t stride_;
  float* rows_ = nullptr;  ///< [query_rows][stride_]
  TileBuffers tile_;
  std::vector<Running> running_;
};

}  // namespace

AttentionStats ForwardTask(const Problem& problem, const QueryTask& query_task, const KeyNorms& norms,
                           const BlockIndex& index, AttentionState* state) {
  const FlushDenormals flush;
  AttentionStats stats;
  Task task(problem, query_task, norms);
  task.Run(stats);
  task.Finish(state, index);
  return stats;
}

/// Fills in the norm bounds of one key block of every key/value head.
void MeasureKeys(const Problem& problem, size_t s, int64_t key_block, KeyNorms& norms) {
  const FlushDenormals flush;
  const Sequence& sequence = problem.sequences[s];
  const int64_t stride = round_up(problem.head_dim, 16);
  const int64_t key = key_block * key_rows;
  const int64_t count = std::min(key_rows, sequence.keys - key);
  Workspace workspace = Workspace::take(static_cast<size_t>(key_rows * stride));
  float* keys = workspace.part(key_rows * stride);
  for (int64_t head = 0; head < problem.kv_heads; ++head) {
    LoadBlock(problem, problem.k, sequence.batch, sequence.key_begin + key, count, head, keys, stride);
    float most = 0;
    for (int64_t y = 0; y < count; ++y) most = std::max(most, NormBound(keys + y * stride, stride));
    norms.block(s, head, key_block) = most;
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(ForwardTask);
HWY_EXPORT(MeasureKeys);

void vector_forward(const Problem& problem, AttentionState* state) {
  KeyNorms norms(problem);
  Pieces key_blocks(1);
  for (size_t s = 0; s < problem.sequences.size() && !norms.empty(); ++s) key_blocks.add(norms.blocks(s));
  parallel_for(key_blocks.size(), [&](int64_t task) {
    const Piece block = key_blocks.at(task);
    HWY_DYNAMIC_DISPATCH(MeasureKeys)(problem, block.array, block.begin, norms);
  });
  norms.accumulate(problem);
  const BlockIndex index(problem);
  if (state != nullptr && !norms.empty()) {
    state->kernel.state().begin(KernelState::State::Kernel::vector, index.size());
  }
  const std::vector<QueryTask> tasks = query_tasks(problem);
  std::atomic<int64_t> visited{0}, total{0};
  parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t task) {
    const AttentionStats stats =
        HWY_DYNAMIC_DISPATCH(ForwardTask)(problem, tasks[static_cast<size_t>(task)], norms, index, state);
    visited += stats.blocks_visited;
    total += stats.blocks_total;
  });
  if (state != nullptr) state->stats = {.blocks_visited = visited, .blocks_total = total};
}

}  // namespace alibi::kernels
#endif
