// Backward attention in float32 arithmetic, for any instruction set. With P the weights of the forward pass, computed
// again from the log-sum-exp, and Z the dropout factors:
//
//   forward   out = (Z P) v          P = softmax(S)         S = scale q k' + bias
//   backward  dv = (Z P)' dout       dP = Z (dout v')       dS = P (dP - delta)      delta = rowsum(dout out)
//             dq = scale dS k        dk = scale dS' q       dbias = dS
//
// Vectors run across queries, as in the forward pass. The queries of a key/value head are cut into a few chunks; each
// adds up dk and dv for the keys it sees, and the chunks' sums are added in order, so no result depends on threads.
#include <atomic>
#include <cmath>
#include <memory>

#include "attention/blocks.h"
#include "attention/chunks.h"
#include "attention/kernel_state.h"
#include "attention/vector/kernel.h"
#include "core/check.h"
#include "core/memory.h"
#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/vector/backward.cc"
#include "hwy/foreach_target.h"
// Highway's order: foreach_target.h first.
#include "attention/vector/scores-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and what the backward pass needs of it.
struct Block {
  QueryBlock block;
  int64_t first = 0, last = 0;  ///< key blocks that the forward pass visited
  float *q, *q_lanes;           ///< [query_rows][stride], [head_dim][query_rows]
  float *dout, *dout_lanes;     ///< likewise
  float* dq_lanes;              ///< [head_dim][query_rows]
  float* lse;                   ///< of each lane, log2 units; +infinity gives a lane no weights
  float* delta;
  uint32_t* query_keys;  ///< dropout
};

/// Buffers for one tile.
struct TileBuffers {
  float *keys, *values;      ///< [key_rows][stride]
  float *weights, *dscores;  ///< [key_rows][query_rows]
  Ramp ramp;
  Upcoming upcoming;  ///< keys and values of the next tile
};

/// weights: scores become exp2(score - lse); dscores: dout v' becomes weight * (dout v' - delta).
template <bool masked, bool dropout>
void DifferentiateSoftmax(const Problem& problem, const Sequence& sequence, int64_t key, const Seen& seen,
                          const Block& block, TileBuffers& tile) {
  const Floats f;
  const DropoutMask mask(problem.dropout_seed, sequence.batch, block.block.head);
  const uint32_t threshold = DropoutMask::threshold(problem.dropout);
  const Float kept = hn::Set(f, DropoutMask::scale(problem.dropout));
  ForGroups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.Keys(n * lanes, width * lanes);
    for (float* part : {tile.weights, tile.dscores}) ZeroUnseen(part, n * lanes, width * lanes, keys, seen.keys);
    for (int64_t y = keys.begin; y < keys.end; ++y) {
      const bool second = y % 2 != 0;
      const uint32_t pair_key = dropout ? mask.pair_key(sequence.key_begin + key + y - second) : 0;
      for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
        float* weight_at = tile.weights + y * query_rows + c;
        float* dscore_at = tile.dscores + y * query_rows + c;
        const Float weight = Exp2(hn::Sub(hn::Load(f, weight_at), hn::Load(f, block.lse + c)));
        Float dweight = hn::Load(f, dscore_at);
        Float used = weight;
        if (dropout) {
          const auto dropped = Dropped(DropoutBits(block.query_keys + c, pair_key), second, threshold);
          used = hn::IfThenZeroElse(dropped, hn::Mul(weight, kept));
          dweight = hn::IfThenZeroElse(dropped, hn::Mul(dweight, kept));
        }
        Float dscore = hn::Mul(weight, hn::Sub(dweight, hn::Load(f, block.delta + c)));
        if (masked) {  // dout v' of a key that is not seen may be infinity or NaN
          const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
          dscore = hn::IfThenZeroElse(hn::Eq(tile.ramp.Bias(c, y), unseen), dscore);
        }
        hn::Store(used, f, weight_at);
        hn::Store(dscore, f, dscore_at);
      }
    }
  });
  const int64_t padding = (round_up(seen.keys, tile_rows) - seen.keys) * query_rows;
  std::fill_n(tile.weights + seen.keys * query_rows, padding, 0.0f);
  std::fill_n(tile.dscores + seen.keys * query_rows, padding, 0.0f);
}

void SoftmaxGradient(const Problem& problem, const Sequence& sequence, int64_t key, const Seen& seen,
                     const Block& block, TileBuffers& tile) {
  if (tile.ramp.masked) {
    problem.dropout > 0 ? DifferentiateSoftmax<true, true>(problem, sequence, key, seen, block, tile)
                        : DifferentiateSoftmax<true, false>(problem, sequence, key, seen, block, tile);
  } else {
    problem.dropout > 0 ? DifferentiateSoftmax<false, true>(problem, sequence, key, seen, block, tile)
                        : DifferentiateSoftmax<false, false>(problem, sequence, key, seen, block, tile);
  }
}

/// Adds the tile's dscores by distance, and from there into buckets or the slope.
void AddBiasGradient(const Problem& problem, const QueryBlock& block, int64_t count, const TileBuffers& tile,
                     BiasGradient& gradient) {
  const Floats f;
  constexpr int64_t parts = 4;  // rows that follow each other overlap; apart, they need not wait for each other
  HWY_ALIGN float by_distance[parts][Ramp::size] = {};
  for (int64_t y = 0; y < count; ++y) {
    for (int64_t c = 0; c < block.rows; c += lanes) {
      float* at = by_distance[y % parts] + Ramp::Index(c, y);
      hn::StoreU(hn::Add(hn::LoadU(f, at), hn::Load(f, tile.dscores + y * query_rows + c)), f, at);
    }
  }
  for (int64_t r = 0; r < Ramp::size - 1; ++r) {
    const float sum = (by_distance[0][r] + by_distance[1][r]) + (by_distance[2][r] + by_distance[3][r]);
    gradient.Add(problem, block, tile.ramp.first + r, static_cast<double>(sum));
  }
}

/// One key block against one query block.
void Fold(const Problem& problem, const Sequence& sequence, int64_t key, int64_t stride, TileBuffers& tile,
          Block& block, float* dk, float* dv, BiasGradient* gradient) {
  const QueryBlock& queries = block.block;
  const int64_t count = std::min(key_rows, queries.key_end - key);
  FillRamp(queries, key, tile.ramp);
  const Seen seen(queries, key, count, tile.ramp);
  Scores(problem, queries, block.q_lanes, tile.keys, stride, seen, tile.ramp, tile.upcoming, tile.weights);
  Product<Left::rows>(tile.values, stride, block.dout_lanes, query_rows, queries.rows,
                      KeysByLanes{seen, problem.head_dim}, tile.upcoming, Store{tile.dscores, query_rows});
  SoftmaxGradient(problem, sequence, key, seen, block, tile);
  Product<Left::rows>(tile.weights, query_rows, block.dout, stride, problem.head_dim, SumsOfLanes{seen}, tile.upcoming,
                      Add{dv, stride});
  Product<Left::rows>(tile.dscores, query_rows, block.q, stride, problem.head_dim, SumsOfLanes{seen}, tile.upcoming,
                      Add{dk, stride});
  if (tile.ramp.masked && !AllFinite(tile.keys, count * stride)) {
    AddCarefully(tile.keys, stride, tile.dscores, count, problem.head_dim, queries.rows, block.dq_lanes);
  } else {
    Product<Left::columns>(tile.keys, stride, tile.dscores, query_rows, queries.rows,
                           SumsOfKeys{seen, problem.head_dim}, tile.upcoming, Add{block.dq_lanes, query_rows});
  }
  if (gradient != nullptr) AddBiasGradient(problem, queries, count, tile, *gradient);
}

Block Start(const Problem& problem, const AttentionState& state, const Sequence& sequence, const QueryBlock& queries,
            int64_t stride, float* rows, Workspace& workspace) {
  Block block;
  block.block = queries;
  block.q = workspace.part(stride * query_rows);
  block.q_lanes = workspace.part(stride * query_rows);
  block.dout = workspace.part(stride * query_rows);
  block.dout_lanes = workspace.part(stride * query_rows);
  block.dq_lanes = workspace.part(stride * query_rows);
  block.lse = workspace.part(query_rows);
  block.delta = workspace.part(query_rows);
  block.query_keys = reinterpret_cast<uint32_t*>(workspace.part(query_rows));
  const int64_t b = sequence.batch;
  const int64_t row = sequence.query_begin + queries.row;
  LoadQueries(problem, problem.q, sequence, queries, block.q, stride, block.q_lanes);
  LoadQueries(problem, problem.dout, sequence, queries, block.dout, stride, block.dout_lanes);
  std::fill_n(block.lse, query_rows, std::numeric_limits<float>::infinity());
  const float* lse =
      state.kernel.state().lse.data<float>() + (b * problem.heads + queries.head) * problem.queries + row;
  for (int64_t x = 0; x < queries.rows; ++x) {
    // A row that saw no key has no weights.
    if (lse[x] != -std::numeric_limits<float>::infinity()) block.lse[x] = lse[x] * std::numbers::log2e_v<float>;
  }
  // delta = rowsum(dout out), in the order in which dout v' is summed: where one key has all the weight, out is its v,
  // and dP - delta must vanish.
  float* out_lanes = block.dq_lanes;
  LoadQueries(problem, problem.out, sequence, queries, rows, stride, out_lanes);
  const Floats f;
  for (int64_t c = 0; c < query_rows; c += lanes) {
    Float sum = hn::Zero(f);
    for (int64_t i = 0; i < problem.head_dim && c < queries.rows; ++i) {
      const int64_t at = i * query_rows + c;
      sum = hn::MulAdd(hn::Load(f, out_lanes + at), hn::Load(f, block.dout_lanes + at), sum);
    }
    hn::Store(sum, f, block.delta + c);
  }
  std::fill_n(block.dq_lanes, stride * query_rows, 0.0f);
  if (problem.dropout > 0) {
    const DropoutMask mask(problem.dropout_seed, b, queries.head);
    for (int64_t x = 0; x < query_rows; ++x) block.query_keys[x] = mask.query_key(row + x);
  }
  return block;
}

void Finish(const Problem& problem, const Sequence& sequence, int64_t stride, float* rows, const Block& block) {
  const QueryBlock& queries = block.block;
  Transpose(block.dq_lanes, query_rows, rows, stride, round_up(problem.head_dim, 4), round_up(queries.rows, 4));
  for (int64_t x = 0; x < queries.rows; ++x) {
    StoreRow(problem, rows + x * stride, problem.scale, problem.dq, sequence.batch,
             sequence.query_begin + queries.row + x, queries.head);
  }
}

/// Rows [row_begin, row_end) of heads [head_begin, head_end): a few query blocks that share each key block.
void FoldBlocks(const Problem& problem, const AttentionState& state, Chunk& chunk, const BlockIndex& index,
                int64_t head_begin, int64_t head_end, int64_t row_begin, int64_t row_end) {
  const Sequence& sequence = problem.sequences[chunk.sequence];
  const int64_t stride = round_up(problem.head_dim, 16);
  const int64_t count_blocks = (head_end - head_begin) * ceil_div(row_end - row_begin, query_rows);
  const int64_t floats = count_blocks * ((5 * stride + 3) * query_rows + 128) +
                         (2 * stride + 2 * query_rows) * key_rows + stride * query_rows;
  Workspace workspace = Workspace::take(static_cast<size_t>(floats));
  TileBuffers tile;
  tile.keys = workspace.part(key_rows * stride);
  tile.values = workspace.part(key_rows * stride);
  tile.weights = workspace.part(key_rows * query_rows);
  tile.dscores = workspace.part(key_rows * query_rows);
  float* rows = workspace.part(query_rows * stride);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(count_blocks));
  int64_t first = chunk.last, last = chunk.first;
  for (int64_t head = head_begin; head < head_end; ++head) {
    for (int64_t row = row_begin; row < row_end; row += query_rows) {
      const QueryBlock queries = query_block_at(problem, sequence, head, row);
      blocks.push_back(Start(problem, state, sequence, queries, stride, rows, workspace));
      Block& block = blocks.back();
      std::tie(block.first, block.last) = visited_keys(state, index, chunk.sequence, queries);
      first = std::min(first, block.first);
      last = std::max(last, block.last);
    }
  }
  for (int64_t key_block = first; key_block < last; ++key_block) {
    const int64_t key = key_block * key_rows;
    const int64_t count = std::min(key_rows, sequence.keys - key);
    const int64_t at = (key_block - chunk.first) * key_rows * stride;
    bool loaded = false;
    for (Block& block : blocks) {
      if (key_block < block.first || key_block >= block.last) continue;
      if (!loaded) {
        LoadKeys(problem, problem.k, sequence, key, count, chunk.kv_head, tile.keys, stride);
        LoadKeys(problem, problem.v, sequence, key, count, chunk.kv_head, tile.values, stride);
        const int64_t next = key + key_rows;
        if (key_block + 1 < last) {
          tile.upcoming.Start(problem, sequence, next, std::min(key_rows, sequence.keys - next), chunk.kv_head);
        }
        loaded = true;
      }
      BiasGradient* gradient =
          chunk.bias.empty() ? nullptr : &chunk.bias[static_cast<size_t>(block.block.head % problem.group())];
      Fold(problem, sequence, key, stride, tile, block, chunk.dk.get() + at, chunk.dv.get() + at, gradient);
    }
  }
  for (const Block& block : blocks) Finish(problem, sequence, stride, rows, block);
}

}  // namespace

void BackwardChunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, Chunk& chunk) {
  const FlushDenormals flush;
  allocate_sums(problem, chunk);
  constexpr int64_t blocks_together = 4;
  constexpr int64_t heads_together = 8;
  const int64_t group_end = (chunk.kv_head + 1) * problem.group();
  for (int64_t head = chunk.kv_head * problem.group(); head < group_end; head += heads_together) {
    const int64_t head_end = std::min(head + heads_together, group_end);
    const int64_t rows = query_rows * std::max<int64_t>(1, blocks_together / (head_end - head));
    for (int64_t row = chunk.row_begin; row < chunk.row_end; row += rows) {
      FoldBlocks(problem, state, chunk, index, head, head_end, row, std::min(row + rows, chunk.row_end));
    }
  }
}

/// dk and dv of one key block: the sums of the chunks [begin, end), in order.
void WriteKeyGradients(const Problem& problem, const Chunk* begin, const Chunk* end, int64_t key_block) {
  const FlushDenormals flush;
  const Floats f;
  const Sequence& sequence = problem.sequences[begin->sequence];
  const int64_t stride = round_up(problem.head_dim, 16);
  const int64_t key = key_block * key_rows;
  const int64_t count = std::min(key_rows, sequence.keys - key);
  Workspace workspace = Workspace::take(static_cast<size_t>(key_rows * stride));
  float* total = workspace.part(key_rows * stride);
  for (const bool is_key : {true, false}) {
    std::fill_n(total, count * stride, 0.0f);
    for (const Chunk* chunk = begin; chunk < end; ++chunk) {
      if (key_block < chunk->first || key_block >= chunk->last) continue;
      const float* part = (is_key ? chunk->dk : chunk->dv).get() + (key_block - chunk->first) * key_rows * stride;
      for (int64_t i = 0; i < count * stride; i += lanes) {
        hn::Store(hn::Add(hn::Load(f, total + i), hn::Load(f, part + i)), f, total + i);
      }
    }
    for (int64_t y = 0; y < count; ++y) {
      StoreRow(problem, total + y * stride, is_key ? problem.scale : 1.0f, is_key ? problem.dk : problem.dv,
               sequence.batch, sequence.key_begin + key + y, begin->kv_head);
    }
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(BackwardChunk);
HWY_EXPORT(WriteKeyGradients);

void vector_backward(const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  const KeepMemory keep;  // the sums of a chunk serve the next
  const BlockIndex index(problem);
  check_blocks(state.kernel.state(), KernelState::State::Kernel::vector, index.size());
  std::vector<ChunkGroup> groups = chunk_groups(problem, state, index, sums);
  const ChunkOrder order(groups);
  const auto write = [&](const ChunkGroup& group, int64_t key_block) {
    const Chunk* chunks = group.chunks.data();
    HWY_DYNAMIC_DISPATCH(WriteKeyGradients)(problem, chunks, chunks + group.chunks.size(), key_block);
  };
  const auto release = [](ChunkGroup& group) {
    for (Chunk& chunk : group.chunks) release_sums(chunk);
  };
  // Of many groups each is written by the thread that ends its last chunk, and its memory serves the next; the key
  // blocks of a few groups are shared by all threads.
  constexpr size_t many = 8;
  std::vector<std::atomic<size_t>> ended(groups.size());
  const auto is_written_at_once = [&](const ChunkGroup& group) {
    return groups.size() >= many || group.chunks.size() == 1;
  };
  parallel_for(order.size(), [&](int64_t task) {
    const auto [group, chunk] = order.at(task);
    HWY_DYNAMIC_DISPATCH(BackwardChunk)(problem, state, index, *chunk);
    const bool last = ++ended[static_cast<size_t>(group - groups.data())] == group->chunks.size();
    if (!last || !is_written_at_once(*group)) return;
    for (int64_t key_block = 0; key_block < group->key_blocks; ++key_block) write(*group, key_block);
    release(*group);
  });
  for (ChunkGroup& group : groups) {
    if (is_written_at_once(group)) continue;
    parallel_for(group.key_blocks, [&](int64_t key_block) { write(group, key_block); });
    release(group);
  }
  add_bias_gradients(problem, groups, sums);
}

}  // namespace alibi::kernels
#endif
