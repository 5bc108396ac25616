#include <algorithm>
#include <vector>

#include "attention/cuda/passes.h"
#include "attention/cuda/sent.h"
#include "attention/kernel_state.h"
#include "attention/skip/norms.h"

namespace alibi::kernels::cuda {
namespace {

KeyTree tree_of(const CachedBounds& bounds, int64_t keys) {
  KeyTree tree = {};
  int64_t nodes = core::ceil_div(keys, block_keys);
  for (const Tensor& level : bounds.levels) {
    tree.level[tree.levels] = static_cast<KeyNode*>(level.raw());
    tree.stride[tree.levels++] = level.size(1);
    if (nodes <= 1) break;  // the other levels are for later keys
    nodes = core::ceil_div(nodes, node_children);
  }
  tree.centres = static_cast<float*>(bounds.centres.raw());
  tree.centre_norms = static_cast<float*>(bounds.centre_norms.raw());
  return tree;
}

/// How the keys of a call are split. The split depends only on shapes, so results always have the same bits.
struct Splits {
  explicit Splits(const Problem& problem)
      : rows(problem.queries * problem.group()),
        tiles(core::ceil_div(rows, decode_rows)),
        all_tiles(problem.batch * problem.kv_heads * tiles) {
    // Enough thread blocks for a large GPU even if most have nothing to do, and few enough to merge quickly.
    constexpr int64_t wanted = 2048, most = 256, min_blocks = 4;
    const int64_t blocks = core::ceil_div(problem.keys, block_keys);
    blocks_of_split = std::max(min_blocks, core::ceil_div(blocks, std::clamp<int64_t>(wanted / all_tiles, 1, most)));
    splits = std::max<int64_t>(1, core::ceil_div(blocks, blocks_of_split));
  }

  int64_t rows, tiles, all_tiles;  ///< rows and tiles of a key/value head, and tiles of all heads
  int64_t blocks_of_split = 0, splits = 0;
};

/// Number of key blocks that the tiles see. A tile sees the key blocks of all its rows.
int64_t blocks_seen(const Problem& problem, const Splits& split) {
  int64_t blocks = 0;
  for (const Sequence& s : problem.sequences) {
    for (int64_t row = 0; row < problem.kv_heads * split.rows;) {
      const int64_t kv_head = row / split.rows;
      const int64_t end = std::min(row % split.rows + decode_rows, split.rows) + kv_head * split.rows;
      Range all = {s.keys, 0};
      for (; row < end; ++row) {
        const int64_t query = row % split.rows / problem.group(), head = row % split.rows % problem.group();
        const int64_t position = s.query_offset + query;
        const Range seen =
            Problem::keys_seen(problem.bias(s, kv_head * problem.group() + head), position, position, s.keys);
        if (!seen.empty()) all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
      }
      if (!all.empty()) blocks += core::ceil_div(all.end, block_keys) - all.begin / block_keys;
    }
  }
  return blocks;
}

}  // namespace

void note_keys(const Machine& machine, const Tensor& keys, int64_t begin, const CachedBounds& bounds) {
  const int64_t length = keys.size(1), heads = keys.size(0) * keys.size(2);
  const Type type = type_of(keys.dtype());
  CacheArguments arguments = {.k = {static_cast<uint16_t*>(keys.raw()), keys.stride(0), keys.stride(1), keys.stride(2)},
                              .tree = tree_of(bounds, length),
                              .kv_heads = static_cast<int32_t>(keys.size(2)),
                              .head_dim = static_cast<int32_t>(keys.size(3)),
                              .begin = static_cast<int32_t>(begin),
                              .end = static_cast<int32_t>(length)};
  const Launches& launches = machine.launches();
  void* const stream = machine.stream();
  if (begin < centre_rows && length >= centre_rows) {
    machine.check_launch("cached_centres", launches.cached_centres(arguments, heads, type, stream));
    arguments.begin = 0;  // from this call on the centre exists
  }
  const int64_t blocks = core::ceil_div(length, block_keys) - arguments.begin / block_keys;
  machine.check_launch("measure_cached", launches.measure_cached(arguments, heads * blocks, type, stream));
  machine.check_launch("raise_nodes", launches.raise_nodes(arguments, heads, type, stream));
}

void note_gates(const Machine& machine, int64_t begin, int64_t length, const CachedBounds& bounds) {
  static_assert(sizeof(GateBlock) == gate_block_floats * sizeof(float));
  const Tensor& gates = bounds.log_decay;
  const int64_t batch = gates.size(0), first = begin / block_keys;
  const int64_t units = core::ceil_div(length, block_keys) - first;
  std::vector<SequenceRows> sequences(static_cast<size_t>(batch), SequenceRows{});
  for (size_t b = 0; b < sequences.size(); ++b) {
    sequences[b].batch = static_cast<int32_t>(b);
    sequences[b].keys = static_cast<int32_t>(length);
    sequences[b].bounds_before = static_cast<int32_t>(static_cast<int64_t>(b) * units);
  }
  Sent sent;
  const size_t sequences_at = sent.add(sequences);
  sent.send(machine);
  Call call = {};
  call.sequences = sent.at<SequenceRows>(sequences_at);
  call.sequence_count = static_cast<int32_t>(batch);
  call.heads = static_cast<int32_t>(gates.size(2));
  call.key_units = static_cast<int32_t>(batch * units);
  call.gate_entries = static_cast<int32_t>(bounds.gates.size(1));
  sum_gates(machine, call, gates, static_cast<GateBlock*>(bounds.gates.raw()), first);
}

bool decode(const Machine& machine, const Problem& problem, const CachedBounds& bounds, AttentionState* state) {
  if (!supports(problem)) return false;
  check_device(machine, problem);
  const Splits split(problem);
  const bool skips = asks_skip_rule(problem);
  Sent sent;
  const SentCall call(problem, sent);
  sent.send(machine);
  const int64_t rows = problem.batch * problem.heads * problem.queries, slots = split.splits + (skips ? 1 : 0);
  const Made<DecodeLimits> limits(machine, skips ? split.all_tiles : 0);
  const Made<PartialRow> partials(machine, rows * slots);
  const Made<float> partial_out(machine, rows * slots * problem.head_dim);
  Call sent_call = call.call(sent);
  if (form_of(problem) == Form::gates) {
    sent_call.gates = static_cast<const GateBlock*>(bounds.gates.raw());
    sent_call.gate_entries = static_cast<int32_t>(bounds.gates.size(1));
  }
  const DecodeArguments arguments = {
      .call = sent_call,
      .out = rows_of(problem.out),
      .tree = tree_of(bounds, problem.keys),
      .limits = limits.get(),
      .partials = partials.get(),
      .partial_out = partial_out.get(),
      .lse = state != nullptr ? static_cast<float*>(state->lse.raw()) : nullptr,
      .lse_from_nearest = state != nullptr ? static_cast<float*>(core::state_of(state->kernel).lse.raw()) : nullptr,
      .tiles = static_cast<int32_t>(split.tiles),
      .splits = static_cast<int32_t>(split.splits),
      .slots = static_cast<int32_t>(slots),
      .blocks_of_split = static_cast<int32_t>(split.blocks_of_split),
      .budget = skip_budget(problem)};
  const Launches& launches = machine.launches(form_of(problem));
  void* const stream = machine.stream();
  const Type type = type_of(problem.dtype);
  if (skips) machine.check_launch("decode_near", launches.decode_near(arguments, split.all_tiles, type, stream));
  machine.check_launch("decode_splits",
                       launches.decode_splits(arguments, split.all_tiles * split.splits, type, stream));
  machine.check_launch("decode_merge", launches.decode_merge(arguments, rows, type, stream));
  if (state == nullptr) return true;
  state->stats.blocks_total = state->stats.blocks_visited = blocks_seen(problem, split);
  if (!skips) return true;
  std::vector<DecodeLimits> visited(static_cast<size_t>(split.all_tiles));
  machine.copy_to_host(visited.data(), limits.get(), visited.size() * sizeof(DecodeLimits));
  state->stats.blocks_visited = 0;
  for (const DecodeLimits& tile : visited) state->stats.blocks_visited += tile.end - tile.begin;
  return true;
}

}  // namespace alibi::kernels::cuda
