// Assigns tiles to thread blocks. The tile follows from the block's index and a short table, so the host needs no list.
#pragma once

#include "attention/cuda/place.h"

ALIBI_LANES_BEGIN

/// A tile of query rows of a head, or a block of keys of a key/value head; `part` selects some of its columns.
struct Task {
  int sequence, head, tile, part;
};

/// The sequence that contains unit `number`, if sequence i begins at number begin(i).
template <class Begin>
ALIBI_LANE int sequence_of(int sequences, int number, const Begin& begin) {
  int low = 0, high = sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begin(middle) <= number ? low : high) = middle;
  }
  return low;
}

/// The head of thread block `index`, and its unit among the `units` of all sequences. The heads of a class alternate.
struct HeadUnit {
  int head, unit;

  ALIBI_LANE HeadUnit(const HeadRank* order, int units, int index) {
    const HeadRank rank = order[index / units];
    const int within = index - rank.begin * units;
    unit = within / rank.size;
    head = order[rank.begin + within % rank.size].head;
  }
};

/// The last tiles of all sequences come first, because they have the most work in causal attention.
ALIBI_LANE Task query_task(const Call& call, int index) {
  const HeadUnit at(call.head_order, call.tiles, index);
  const int from_last = call.tiles - 1 - at.unit;
  if (call.uniform != 0) return {from_last % call.sequence_count, at.head, from_last / call.sequence_count, 0};
  const auto begin = [&](int i) { return call.sequences[i].tiles_before; };
  const int sequence = sequence_of(call.sequence_count, from_last, begin);
  return {sequence, at.head, from_last - begin(sequence), 0};
}

/// The first blocks of keys come first. Each sequence has one number more than it has blocks; that task is empty.
ALIBI_LANE Task key_task(const Call& call, int index, int parts) {
  const HeadUnit at(call.kv_head_order, call.key_units, index / parts);
  const int part = index % parts;
  if (call.uniform != 0) return {at.unit % call.sequence_count, at.head, at.unit / call.sequence_count, part};
  const auto begin = [&](int i) { return call.sequences[i].bounds_before; };
  const int sequence = sequence_of(call.sequence_count, at.unit, begin);
  return {sequence, at.head, at.unit - begin(sequence), part};
}

/// Head by head, the last 128 keys first. This is the order in which dq is summed (both_gradients.h). With packed
/// sequences every other number is an odd block of keys and has no task.
ALIBI_LANE Task both_task(const Call& call, int index) {
  const int units = call.both_units;
  const int head = call.kv_head_order[index / units].head, unit = units - 1 - index % units;
  constexpr int blocks = both_keys / block_keys;
  if (call.uniform != 0) return {unit % call.sequence_count, head, unit / call.sequence_count * blocks, 0};
  const auto begin = [&](int i) { return call.sequences[i].bounds_before; };
  const int sequence = sequence_of(call.sequence_count, unit, begin);
  return {sequence, head, unit - begin(sequence), 0};
}

ALIBI_LANE int key_blocks(const SequenceRows& sequence) { return (sequence.keys + block_keys - 1) / block_keys; }

/// Writes a part of the host's arrays that fits into a kernel's arguments. Unlike a copy from the host's memory, it
/// does not wait and can be captured into a CUDA graph.
struct Store {
  using Arguments = StoreArguments;
  static constexpr int threads = 256, blocks_at_once = 1, shared_bytes = 0;
  static_assert(StoreArguments::max_chunks <= threads);

  static ALIBI_LANE void run(const Arguments& a) {
    if (thread_index() < a.count) a.to[thread_index()] = a.chunks[thread_index()];
  }
};

ALIBI_LANES_END
