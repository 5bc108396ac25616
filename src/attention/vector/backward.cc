// Backward attention in float32 arithmetic, for any instruction set. P are the weights of the forward pass, which are
// recomputed from the log-sum-exp, and Z the dropout factors:
//
//   forward   out = (Z P) v          P = softmax(S)         S = scale q k' + bias
//   backward  dv = (Z P)' dout       dP = Z (dout v')       dS = P (dP - delta)      delta = rowsum(dout out)
//             dq = scale dS k        dk = scale dS' q       dbias = dS
//
// With a softcap c, S = c T + bias with T = tanh(scale q k' / c), and dq and dk use dS (1 - T^2) in place of dS.
//
// Vectors run across queries, as in the forward pass. The queries of a key/value head are cut into a few chunks. Each
// chunk sums dk and dv for the keys that it sees. The sums of the chunks are added in a fixed order, so results do not
// depend on threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/kernel_state.h"
#include "attention/skip/penalties.h"
#include "attention/vector/tasks.h"
#include "attention/workspace.h"
#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/vector/backward.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/vector/scores-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// A query block and what the backward pass needs for it.
struct Block {
  QueryBlock block;
  Range visited;             ///< key blocks that the forward pass visited
  float *q, *q_lanes;        ///< [query_rows][stride], [head_dim][query_rows]
  float *dout, *dout_lanes;  ///< same layouts as for q
  float* dq_lanes;           ///< [head_dim][query_rows]
  float* lse;                ///< for each lane, in log2 units; +infinity makes all weights of a lane zero
  float* lse_low;            ///< the rounding error of lse, with coordinates
  float* delta;
  uint32_t* query_draws;  ///< for dropout
  // With coordinates:
  std::vector<PenaltyStep> steps;  ///< [key blocks]
  int stop = penalty_steps;        ///< key blocks from this step on were not visited

  bool has_visited(int64_t key_block) const {
    return key_block >= visited.begin && key_block < visited.end &&
           (steps.empty() || steps[static_cast<size_t>(key_block)] < stop);
  }
};

/// Buffers for one tile.
struct TileBuffers {
  float *keys, *values;      ///< [key_rows][stride]
  float *weights, *dscores;  ///< [key_rows][query_rows]
  float* derivatives;        ///< [key_rows][query_rows]: of the scores, with a softcap; otherwise null
  TileBiases biases;
  Prefetcher prefetcher;  ///< prefetches keys and values of the next tile
};

/// Replaces scores by weights = exp2(score - lse), and dscores from dout v' to weight * (dout v' - delta).
template <bool masked, bool dropout, bool precise_lse = false>
void differentiate_softmax(const Problem& problem, const Sequence& sequence, int64_t key, const SeenKeys& seen,
                           const Block& block, TileBuffers& tile) {
  const Floats f;
  const DropoutMask mask(problem.dropout_seed, sequence.batch, block.block.head);
  const uint32_t threshold = DropoutMask::threshold(problem.dropout);
  const Float kept = hn::Set(f, DropoutMask::scale(problem.dropout));
  for_groups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.keys_of(n * lanes, width * lanes);
    for (float* part : {tile.weights, tile.dscores}) zero_unseen(part, n * lanes, width * lanes, keys, seen.keys);
    for (int64_t y = keys.begin; y < keys.end; ++y) {
      const bool second = y % 2 != 0;
      const uint32_t pair_draw = dropout ? mask.pair_draw(sequence.first_key_drawn + key + y - second) : 0;
      for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
        float* weight_at = tile.weights + y * query_rows + c;
        float* dscore_at = tile.dscores + y * query_rows + c;
        Float score = hn::Sub(hn::Load(f, weight_at), hn::Load(f, block.lse + c));
        if (precise_lse) score = hn::Sub(score, hn::Load(f, block.lse_low + c));
        Float weight = exp2_of(score);
        Float dweight = hn::Load(f, dscore_at);
        const auto hidden = hn::Eq(tile.biases.at(c, y), hn::Set(f, -std::numeric_limits<float>::infinity()));
        if (masked) weight = hn::IfThenZeroElse(hidden, weight);  // the row's lse may be NaN
        Float used = weight;
        if (dropout) {
          const auto dropped = dropped_weights(dropout_bits(block.query_draws + c, pair_draw), second, threshold);
          used = hn::IfThenZeroElse(dropped, hn::Mul(weight, kept));
          dweight = hn::IfThenZeroElse(dropped, hn::Mul(dweight, kept));
        }
        Float dscore = hn::Mul(weight, hn::Sub(dweight, hn::Load(f, block.delta + c)));
        if (masked) dscore = hn::IfThenZeroElse(hidden, dscore);  // and so may dout v'
        hn::Store(used, f, weight_at);
        hn::Store(dscore, f, dscore_at);
      }
    }
  });
  const int64_t padding = (round_up(seen.keys, tile_rows) - seen.keys) * query_rows;
  std::fill_n(tile.weights + seen.keys * query_rows, padding, 0.0f);
  std::fill_n(tile.dscores + seen.keys * query_rows, padding, 0.0f);
}

void softmax_gradient(const Problem& problem, const Sequence& sequence, int64_t key, const SeenKeys& seen,
                      const Block& block, TileBuffers& tile) {
  if (block.block.bias.coordinates) {
    differentiate_softmax<false, false, true>(problem, sequence, key, seen, block, tile);
  } else if (tile.biases.masked) {
    problem.dropout > 0 ? differentiate_softmax<true, true>(problem, sequence, key, seen, block, tile)
                        : differentiate_softmax<true, false>(problem, sequence, key, seen, block, tile);
  } else {
    problem.dropout > 0 ? differentiate_softmax<false, true>(problem, sequence, key, seen, block, tile)
                        : differentiate_softmax<false, false>(problem, sequence, key, seen, block, tile);
  }
}

/// Sums the tile's dscores by distance, and adds these sums to the gradient of the bias.
void add_bias_gradient(const QueryBlock& block, int64_t count, bool has_sink, const TileBuffers& tile,
                       BiasGradient& gradient) {
  const Floats f;
  constexpr int64_t parts = 4;  // neighbouring rows overlap, so they are added to different arrays
  HWY_ALIGN float by_distance[parts][TileBiases::size] = {};
  for (int64_t y = 0; y < count; ++y) {
    for (int64_t c = 0; c < block.rows; c += lanes) {
      float* at = by_distance[y % parts] + TileBiases::index(c, y);
      hn::StoreU(hn::Add(hn::LoadU(f, at), hn::Load(f, tile.dscores + y * query_rows + c)), f, at);
    }
  }
  // With a sink, the gradients of a row's scores do not sum to zero.
  const int64_t nearest = has_sink ? 0 : std::min(block.nearest(0), block.nearest(block.rows - 1));
  double sums[TileBiases::size - 1];
  for (int64_t r = 0; r < TileBiases::size - 1; ++r) {
    sums[r] = static_cast<double>((by_distance[0][r] + by_distance[1][r]) + (by_distance[2][r] + by_distance[3][r]));
  }
  block.bias->add_gradient(tile.biases.first, nearest, sums, gradient.data());
}

/// Adds the gradient of the slope, -sum of dS * distance, of a head with coordinates.
void add_slope_gradient(const QueryBlock& block, int64_t key, int64_t count, TileBuffers& tile,
                        BiasGradient& gradient) {
  const Floats f;
  float* const distances = tile.biases.pairs;  // the biases are not used any more
  fill_distances(*block.bias.coordinates.points, block.row, block.rows, key, count, 1, distances);
  Float sum = hn::Zero(f);
  for (int64_t y = 0; y < count; ++y) {
    for (int64_t c = 0; c < block.rows; c += lanes) {
      const auto lane = hn::Lt(hn::Iota(f, static_cast<float>(c)), hn::Set(f, static_cast<float>(block.rows)));
      const int64_t at = y * query_rows + c;
      const Float part = hn::Mul(hn::Load(f, distances + at), hn::Load(f, tile.dscores + at));
      sum = hn::Add(sum, hn::IfThenElseZero(lane, part));
    }
  }
  gradient.front() -= static_cast<double>(hn::GetLane(hn::SumOfLanes(f, sum)));
}

/// Adds the tile's sums of dscores to those of a head's gates: of rows to the key at their position, and minus those of
/// columns to their key. sums[0] is that of key `first`.
void add_gate_sums(const QueryBlock& block, int64_t key, int64_t count, const TileBuffers& tile, int64_t first,
                   double* sums) {
  const Floats f;
  HWY_ALIGN float of_rows[query_rows] = {};
  for (int64_t y = 0; y < count; ++y) {
    const float* const dscores = tile.dscores + y * query_rows;
    Float of_column = hn::Zero(f);
    for (int64_t c = 0; c < block.rows; c += lanes) {
      const Float dscore = hn::Load(f, dscores + c);
      of_column = hn::Add(of_column, dscore);
      hn::Store(hn::Add(hn::Load(f, of_rows + c), dscore), f, of_rows + c);
    }
    sums[key + y - first] -= static_cast<double>(hn::GetLane(hn::SumOfLanes(f, of_column)));
  }
  for (int64_t x = 0; x < block.rows; ++x) {
    sums[block.bias.decay.key_of(block.position + x) - first] += static_cast<double>(of_rows[x]);
  }
}

/// Multiplies the dscores by the derivatives of the scores.
void multiply_derivatives(const SeenKeys& seen, const TileBuffers& tile) {
  const Floats f;
  for_groups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.keys_of(n * lanes, width * lanes);
    for (int64_t y = keys.begin; y < keys.end; ++y) {
      for (int64_t at = y * query_rows + n * lanes; at < y * query_rows + (n + width) * lanes; at += lanes) {
        hn::Store(hn::Mul(hn::Load(f, tile.dscores + at), hn::Load(f, tile.derivatives + at)), f, tile.dscores + at);
      }
    }
  });
}

/// Adds the gradients from one key block and one query block.
void fold(const Problem& problem, const Sequence& sequence, int64_t key, int64_t stride, TileBuffers& tile,
          Block& block, Chunk& chunk) {
  const QueryBlock& queries = block.block;
  const int64_t count = std::min(key_rows, queries.seen.end - key), first = chunk.key_blocks.begin * key_rows;
  const int64_t of_group = queries.head % problem.group();
  float* const dk = chunk.dk.get() + (key - first) * stride;
  float* const dv = chunk.dv.get() + (key - first) * stride;
  fill_bias(queries, key, tile.biases);
  const SeenKeys seen(queries, key, count, tile.biases);
  make_scores(problem, queries, block.q_lanes, tile.keys, stride, seen, tile.biases, tile.prefetcher, tile.weights,
              tile.derivatives);
  multiply<Left::rows>(tile.values, stride, block.dout_lanes, query_rows, queries.rows,
                       KeysByLanes{seen, problem.head_dim}, tile.prefetcher, Store{tile.dscores, query_rows});
  softmax_gradient(problem, sequence, key, seen, block, tile);
  if (!chunk.bias.empty()) {
    BiasGradient& gradient = chunk.bias[static_cast<size_t>(of_group)];
    queries.bias.coordinates ? add_slope_gradient(queries, key, count, tile, gradient)
                             : add_bias_gradient(queries, count, !problem.sinks.empty(), tile, gradient);
  }
  if (!chunk.gates.empty()) {
    double* const sums = &chunk.gates[static_cast<size_t>(of_group * chunk.key_blocks.size() * key_rows)];
    add_gate_sums(queries, key, count, tile, first, sums);
  }
  if (tile.derivatives != nullptr) multiply_derivatives(seen, tile);
  multiply<Left::rows>(tile.weights, query_rows, block.dout, stride, problem.head_dim, SumsOfLanes{seen},
                       tile.prefetcher, Add{dv, stride});
  multiply<Left::rows>(tile.dscores, query_rows, block.q, stride, problem.head_dim, SumsOfLanes{seen}, tile.prefetcher,
                       Add{dk, stride});
  if (tile.biases.masked && !all_finite(tile.keys, count * stride)) {
    add_carefully(tile.keys, stride, tile.dscores, count, problem.head_dim, queries.rows, block.dq_lanes);
  } else {
    multiply<Left::columns>(tile.keys, stride, tile.dscores, query_rows, queries.rows,
                            SumsOfKeys{seen, problem.head_dim}, tile.prefetcher, Add{block.dq_lanes, query_rows});
  }
}

/// Loads the log-sum-exps of a block. With coordinates they are in two parts.
void load_lse(const Problem& problem, const AttentionState& state, const Sequence& sequence, Block& block) {
  const QueryBlock& queries = block.block;
  const bool in_parts = static_cast<bool>(queries.bias.coordinates);
  std::fill_n(block.lse, query_rows, std::numeric_limits<float>::infinity());
  std::fill_n(block.lse_low, query_rows, 0.0f);
  const int64_t first = (sequence.batch * problem.heads + queries.head) * problem.queries;
  const float* const of_kernel = core::state_of(state.kernel).lse.data<float>() + first;
  const float* const lse = in_parts ? state.lse.data<float>() + first : of_kernel;
  for (int64_t x = 0; x < queries.rows; ++x) {
    const int64_t row = problem.query_row(sequence, queries.row + x);
    if (lse[row] == -std::numeric_limits<float>::infinity()) continue;  // it saw no key and has no weights
    block.lse[x] = in_log2(lse[row]);
    if (in_parts) block.lse_low[x] = of_kernel[row];
  }
}

Block start(const Problem& problem, const AttentionState& state, const Sequence& sequence, const QueryBlock& queries,
            int64_t stride, float* rows, Workspace& workspace) {
  Block block;
  block.block = queries;
  block.q = workspace.part(stride * query_rows);
  block.q_lanes = workspace.part(stride * query_rows);
  block.dout = workspace.part(stride * query_rows);
  block.dout_lanes = workspace.part(stride * query_rows);
  block.dq_lanes = workspace.part(stride * query_rows);
  block.lse = workspace.part(query_rows);
  block.lse_low = workspace.part(query_rows);
  block.delta = workspace.part(query_rows);
  block.query_draws = reinterpret_cast<uint32_t*>(workspace.part(query_rows));
  load_queries(problem, problem.q, sequence, queries, block.q, stride, block.q_lanes);
  load_queries(problem, problem.dout, sequence, queries, block.dout, stride, block.dout_lanes);
  load_lse(problem, state, sequence, block);
  // delta = rowsum(dout out), summed in the same order as dout v'. If one key has all the weight, out is its v, and dP
  // - delta must be exactly zero.
  float* out_lanes = block.dq_lanes;
  load_queries(problem, problem.out, sequence, queries, rows, stride, out_lanes);
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
    const DropoutMask mask(problem.dropout_seed, sequence.batch, queries.head);
    const int64_t first = sequence.first_query_drawn + queries.row;
    for (int64_t x = 0; x < query_rows; ++x) block.query_draws[x] = mask.query_draw(first + x);
  }
  return block;
}

void finish(const Problem& problem, const Sequence& sequence, int64_t stride, float* rows, const Block& block) {
  const QueryBlock& queries = block.block;
  transpose(block.dq_lanes, query_rows, rows, stride, round_up(problem.head_dim, 4), round_up(queries.rows, 4));
  for (int64_t x = 0; x < queries.rows; ++x) {
    store_row(problem, rows + x * stride, problem.scale, problem.dq, sequence.batch,
              problem.query_row(sequence, queries.row + x), queries.head);
  }
}

/// Processes a few query blocks that share each key block that is loaded.
void fold_blocks(const Problem& problem, const AttentionState& state, Chunk& chunk, const BlockIndex& index,
                 const Range& heads, const Range& block_rows) {
  const Sequence& sequence = problem.sequences[chunk.sequence];
  const int64_t stride = round_up(problem.head_dim, 16);
  const int64_t count_blocks = heads.size() * core::ceil_div(block_rows.size(), query_rows);
  const int64_t floats = count_blocks * ((5 * stride + 4) * query_rows + 128) +
                         (2 * stride + 3 * query_rows) * key_rows + stride * query_rows;
  Workspace workspace = Workspace::take(static_cast<size_t>(floats));
  TileBuffers tile;
  tile.keys = workspace.part(key_rows * stride);
  tile.values = workspace.part(key_rows * stride);
  tile.weights = workspace.part(key_rows * query_rows);
  tile.dscores = workspace.part(key_rows * query_rows);
  tile.derivatives = problem.softcap > 0 ? workspace.part(key_rows * query_rows) : nullptr;
  float* rows = workspace.part(query_rows * stride);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(count_blocks));
  Range any = {chunk.key_blocks.end, chunk.key_blocks.begin};
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    for (int64_t row = block_rows.begin; row < block_rows.end; row += query_rows) {
      const QueryBlock queries = query_block_at(problem, sequence, head, row);
      blocks.push_back(start(problem, state, sequence, queries, stride, rows, workspace));
      Block& block = blocks.back();
      block.visited = visited_key_blocks(state, index, chunk.sequence, queries);
      if (const CoordinateBias& bias = queries.bias.coordinates) {
        block.steps = steps_of(bias, bias.points->queries.box(row / query_rows));
        const auto at = static_cast<size_t>(index.at(chunk.sequence, head, row / query_rows));
        block.stop = core::state_of(state.kernel).last_block[at];
      }
      any = {std::min(any.begin, block.visited.begin), std::max(any.end, block.visited.end)};
    }
  }
  for (int64_t key_block = any.begin; key_block < any.end; ++key_block) {
    const int64_t key = key_block * key_rows;
    const int64_t count = std::min(key_rows, sequence.keys - key);
    bool loaded = false;
    for (Block& block : blocks) {
      if (!block.has_visited(key_block)) continue;
      if (!loaded) {
        load_keys(problem, problem.k, sequence, key, count, chunk.kv_head, tile.keys, stride);
        load_keys(problem, problem.v, sequence, key, count, chunk.kv_head, tile.values, stride);
        const int64_t next = key + key_rows;
        if (key_block + 1 < any.end) {
          tile.prefetcher.start(problem, sequence, next, std::min(key_rows, sequence.keys - next), chunk.kv_head);
        }
        loaded = true;
      }
      fold(problem, sequence, key, stride, tile, block, chunk);
    }
  }
  for (const Block& block : blocks) finish(problem, sequence, stride, rows, block);
}

}  // namespace

void backward_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, Chunk& chunk) {
  const FlushDenormals flush;
  allocate_sums(problem, chunk);
  for_each_task(problem, chunk.kv_head, chunk.rows, [&](const Range& heads, const Range& rows) HWY_ATTR {
    fold_blocks(problem, state, chunk, index, heads, rows);
  });
}

void write_key_gradients(const Problem& problem, const std::vector<Chunk>& chunks, int64_t key_block) {
  const FlushDenormals flush;
  const Floats f;
  const Sequence& sequence = problem.sequences[chunks.front().sequence];
  const Coordinates* const points = problem.points(sequence);
  const int64_t stride = round_up(problem.head_dim, 16);
  const int64_t key = key_block * key_rows;
  const int64_t count = std::min(key_rows, sequence.keys - key);
  Workspace workspace = Workspace::take(static_cast<size_t>(key_rows * stride));
  float* total = workspace.part(key_rows * stride);
  for (const bool is_key : {true, false}) {
    std::fill_n(total, count * stride, 0.0f);
    for (const Chunk& chunk : chunks) {
      const int64_t at = key_block - chunk.key_blocks.begin;
      if (at < 0 || at >= chunk.key_blocks.size()) continue;
      const float* part = (is_key ? chunk.dk : chunk.dv).get() + at * key_rows * stride;
      for (int64_t i = 0; i < count * stride; i += lanes) {
        hn::Store(hn::Add(hn::Load(f, total + i), hn::Load(f, part + i)), f, total + i);
      }
    }
    for (int64_t y = 0; y < count; ++y) {
      const int64_t of = points != nullptr ? points->keys.rows[static_cast<size_t>(key + y)] : key + y;
      store_row(problem, total + y * stride, is_key ? problem.scale : 1.0f, is_key ? problem.dk : problem.dv,
                sequence.batch, sequence.key_begin + of, chunks.front().kv_head);
    }
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(backward_chunk);
HWY_EXPORT(write_key_gradients);

void vector_backward_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, Chunk& chunk) {
  HWY_DYNAMIC_DISPATCH(backward_chunk)(problem, state, index, chunk);
}

void vector_write_key_gradients(const Problem& problem, const std::vector<Chunk>& chunks, int64_t key_block) {
  HWY_DYNAMIC_DISPATCH(write_key_gradients)(problem, chunks, key_block);
}

}  // namespace alibi::kernels
#endif
