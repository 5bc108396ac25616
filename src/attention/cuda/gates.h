// Forget gates on a GPU (attention/bias/decay.h). The sum of the gates between a key and a later row has three parts:
// the rest of the key's block, whole blocks, and the row's block up to the row. No part is larger than the sum, so no
// digits cancel, and sums are as exact at a million keys as at a thousand. Sums within a block are float32 numbers, and
// the sums of all blocks before one are pairs of float64 numbers. Only if row and key are in one block is the sum a
// difference, of pairs of float32 numbers.
#pragma once

#include <type_traits>

#include "attention/cuda/order.h"

ALIBI_LANES_BEGIN

/// A smaller gate counts as this: whatever comes before it has no weight in either case.
constexpr float min_gate = -0x1p23f;

/// Index of a head's first GateBlock.
ALIBI_LANE int64_t gate_entry(const Call& call, const SequenceRows& sequence, int head) {
  if (call.gate_entries == 0) return first_entry(call, sequence, head);
  return (int64_t{sequence.batch} * call.heads + head) * call.gate_entries;
}

/// One thread block for each block of keys of each head, from first_block on. Sums its gates. Their sum, and the last
/// document that begins here or -1, are left in the next block.
struct SumGates {
  using Arguments = GateArguments;
  static constexpr int threads = block_keys, blocks_at_once = 8;
  static constexpr uint32_t gates_at = 0, begins_at = threads * sizeof(double);
  static constexpr int shared_bytes = static_cast<int>(begins_at + threads * sizeof(int32_t));

  static ALIBI_LANE void run(const Arguments& a) {
    const Call& call = a.call;
    const int head = block_index() / call.key_units, unit = block_index() % call.key_units, i = thread_index();
    const int number =
        sequence_of(call.sequence_count, unit, [&](int other) { return call.sequences[other].bounds_before; });
    const SequenceRows sequence = call.sequences[number];
    const int block = unit - sequence.bounds_before + a.first_block, key = block * block_keys + i;
    if (block >= key_blocks(sequence)) return;
    const float log = key < sequence.keys
                          ? a.log_decay[sequence.batch * a.batch_stride +
                                        (int64_t{sequence.key_begin} + key) * a.key_stride + head * a.head_stride]
                          : 0.0f;
    const bool begins = log == -infinity;
    shared_store(gates_at + static_cast<uint32_t>(i) * 8, begins ? 0 : in_powers_of_2(log));
    shared_store(begins_at + static_cast<uint32_t>(i) * 4, begins ? key : -1);
    block_sync();
    double start = 0, end = 0;
    int document = -1;
    for (int j = 0; j < block_keys; ++j) {
      const auto gate = shared_load<double>(gates_at + static_cast<uint32_t>(j) * 8);
      const auto begun = shared_load<int>(begins_at + static_cast<uint32_t>(j) * 4);
      (j <= i ? start : end) += gate;
      if (j <= i && begun > document) document = begun;
    }
    GateBlock& to = a.blocks[gate_entry(call, sequence, head) + block];
    to.to_end[i] = static_cast<float>(end);
    to.from_start[i] = static_cast<float>(start);
    to.from_start_low[i] = static_cast<float>(start - static_cast<double>(to.from_start[i]));
    to.documents[i] = document;
    if (i < block_keys - 1) return;
    GateBlock& next = (&to)[1];
    next.before.high = start;
    next.document = document;
  }

  /// NaN for what is no gate, which shows in the results.
  static ALIBI_LANE double in_powers_of_2(float log) {
    const double gate = static_cast<double>(log < min_gate ? min_gate : log);
    return log <= 0 ? gate * 1.4426950408889634 : static_cast<double>(infinity - infinity);
  }
};

/// One thread block for each head of each sequence. Sums the blocks: each thread a range of them, and then again,
/// starting from the sum of the earlier ranges.
struct SumGateBlocks {
  using Arguments = GateArguments;
  static constexpr int threads = 128, blocks_at_once = 8;

  struct Sum : GateSum {
    int document;  ///< the last one that begins

    ALIBI_LANE Sum() {}
    ALIBI_LANE explicit Sum(int before) : GateSum{0, 0}, document(before) {}

    ALIBI_LANE void add(double next, int begun) {
      const double sum = high + next, part = sum - high;
      low += (high - (sum - part)) + (next - part);
      high = sum;
      if (begun > document) document = begun;
    }
  };
  static constexpr int shared_bytes = threads * sizeof(Sum);

  static ALIBI_LANE void run(const Arguments& a) {
    const SequenceRows sequence = a.call.sequences[block_index() / a.call.heads];
    GateBlock* const blocks = a.blocks + gate_entry(a.call, sequence, block_index() % a.call.heads);
    const int first = a.first_block, last = key_blocks(sequence), each = (last - first + threads - 1) / threads;
    const int begin = first + 1 + thread_index() * each, end = begin + each > last ? last + 1 : begin + each;
    Sum own(-1), all(0);
    if (first > 0) {
      static_cast<GateSum&>(all) = blocks[first].before;
      all.document = blocks[first].document;
    }
    for (int i = begin; i < end; ++i) own.add(blocks[i].before.high, blocks[i].document);
    shared_store(static_cast<uint32_t>(thread_index() * sizeof(Sum)), own);
    block_sync();
    for (int j = 0; j < thread_index(); ++j) {
      const auto other = shared_load<Sum>(static_cast<uint32_t>(j * sizeof(Sum)));
      all.add(other.high, other.document);
      all.low += other.low;
    }
    for (int i = begin; i < end; ++i) {
      all.add(blocks[i].before.high, blocks[i].document);
      blocks[i].before = all;
      blocks[i].document = all.document;
    }
    if (thread_index() > 0 || first > 0) return;
    blocks[0].before = {0, 0};
    blocks[0].document = 0;
  }
};

/// The sum over the keys of the blocks [first, end).
ALIBI_LANE float sum_between(const GateSum& first, const GateSum& end) {
  return static_cast<float>((end.high - first.high) + (end.low - first.low));
}
ALIBI_LANE float sum_of_blocks(const GateBlock* blocks, int first, int end) {
  return sum_between(blocks[first].before, blocks[end].before);
}

/// A head of a sequence with gates. A query past the last key counts as one at the last key.
struct GatedPlace : Place {
  const GateBlock* gates;

  ALIBI_LANE GatedPlace(const Call& call, const SequenceRows& sequence, int head)
      : Place(call, sequence, head), gates(call.gates + gate_entry(call, sequence, head)) {}

  /// The first key of the document of a row.
  ALIBI_LANE int document(int row) const {
    const int key = position(row);
    const GateBlock& block = gates[key / block_keys];
    const int own = block.documents[key % block_keys];
    return own >= 0 ? own : block.document;
  }
  ALIBI_LANE Keys seen(int first, int last) const {
    Keys all = Place::seen(first, last);
    if (all.begin >= all.end) return all;
    const int begin = document(first);
    return {begin > all.begin ? begin : all.begin, all.end};
  }
  ALIBI_LANE Keys seen_by_all(int first, int last) const { return {seen(last, last).begin, seen(first, first).end}; }
};

template <Form form>
using PlaceOf = std::conditional_t<form == Form::gates, GatedPlace, Place>;

/// What a tile of rows knows of the gates. Nothing without gates.
template <Form form>
struct TileGates {
  template <class Any>
  ALIBI_LANE TileGates(const Any& /*place*/, int /*row*/) {}
  ALIBI_LANE TileGates() {}
};
template <>
struct TileGates<Form::gates> {
  const GateBlock* blocks;
  GateSum before;  ///< over all keys before `first`
  int first;       ///< the block of the first row's position, where sums of rows begin

  ALIBI_LANE TileGates() {}
  ALIBI_LANE TileGates(const GatedPlace& place, int row)
      : blocks(place.gates), before(), first(place.keys > 0 ? place.position(row) / block_keys : 0) {
    before = blocks[first].before;
  }

  /// The sum from an earlier block's first key to `first`, of which the sum before that block is given.
  ALIBI_LANE float since(const GateSum& earlier) const { return sum_between(earlier, before); }
  ALIBI_LANE float since(int block) const { return since(blocks[block].before); }
};

/// What the biases of a row need of the gates.
struct alignas(16) GateRow {
  float high, low;  ///< their sum: over the keys of the row's block up to the row
  float from_tile;  ///< the sum over the keys up to the row from TileGates::first on
  int document;     ///< the first key of its document

  ALIBI_LANE GateRow() {}
  ALIBI_LANE GateRow(const GatedPlace& place, const TileGates<Form::gates>& tile, int row)
      : high(0), low(0), from_tile(0), document(0) {
    if (place.keys == 0) return;
    const int key = place.position(row), block = key / block_keys;
    high = place.gates[block].from_start[key % block_keys];
    low = place.gates[block].from_start_low[key % block_keys];
    from_tile = sum_of_blocks(place.gates, tile.first, block) + high;
    document = place.document(row);
  }
};

/// The gates between the keys of a block and one row, for any block that the row sees. Nothing without gates.
template <Form form>
struct PairGates {
  template <class... Any>
  ALIBI_LANE explicit PairGates(const Any&... /*unused*/) {}
  ALIBI_LANE float add(float score, int /*key*/) const { return score; }
};
template <>
class PairGates<Form::gates> {
 public:
  /// For the block of a key.
  ALIBI_LANE PairGates(const TileGates<Form::gates>& tile, const GateRow& row, int position, int key)
      : block_(tile.blocks[key / block_keys]),
        row_(row),
        same_(position / block_keys <= key / block_keys),
        before_(same_ ? 0.0f : sum_of_blocks(tile.blocks, key / block_keys + 1, position / block_keys) + row.high) {}

  /// The score of a key of the block with its gates.
  ALIBI_LANE float add(float score, int key) const {
    const int i = key % block_keys;
    return score + (same_ ? (row_.high - block_.from_start[i]) + (row_.low - block_.from_start_low[i])
                          : before_ + block_.to_end[i]);
  }

 private:
  const GateBlock& block_;
  const GateRow row_;
  bool same_;
  float before_;
};

ALIBI_LANES_END
