// The backward pass. With p the weights, recomputed from the log-sum-exps of the forward pass,
//
//   dp = dout v'    ds = p (dp - delta)    delta = rowsum(dout out)
//   dq = scale ds k    dk = scale ds' q    dv = p' dout    dslope = -sum of ds |distance|
//
// One kernel computes all gradients with these five products (both_gradients.h). For more than 128 columns, gradients
// of slopes, and GPUs without enough shared memory there are two kernels, which both compute the first two products.
// One has a tile of query rows and computes dq. The other has a block of keys of a key/value head and computes dk and
// dv. All visit the key blocks that the forward pass visited, and give the same bits in every run.
#pragma once

#include "attention/cuda/gates.h"
#include "attention/cuda/order.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

/// Computes lse2 and delta of each query row. One thread for 8 of up to 256 columns.
template <Type type>
struct RowTermsKernel {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, lanes_of_row = 8, rows_of_block = threads / lanes_of_row;
  static constexpr int blocks_at_once = 8, shared_bytes = 0;

  static ALIBI_LANE void run(const Arguments& a) {
    const int64_t entry = int64_t{block_index()} * rows_of_block + thread_index() / lanes_of_row;
    const int64_t row = entry % a.call.queries;
    const int64_t of_head = entry / a.call.queries;
    const auto head = static_cast<int>(of_head % a.call.heads), batch = static_cast<int>(of_head / a.call.heads);
    float delta = 0;
    if (entry < a.rows) {
      const uint16_t* const out = rows_of(a.out, batch, row, head);
      const uint16_t* const dout = rows_of(a.dout, batch, row, head);
      for (int chunk = thread_index() % lanes_of_row; chunk < a.call.head_dim / 8; chunk += lanes_of_row) {
        const Chunk x = *reinterpret_cast<const Chunk*>(out + chunk * 8);
        const Chunk dx = *reinterpret_cast<const Chunk*>(dout + chunk * 8);
        ALIBI_UNROLLED
        for (int e = 0; e < 8; ++e) {
          delta = fmaf(unpack<type>(x.x[e / 2], e % 2), unpack<type>(dx.x[e / 2], e % 2), delta);
        }
      }
    }
    for (int bits = 1; bits < lanes_of_row; bits *= 2) delta += lane_xor(delta, bits);
    if (entry >= a.rows || thread_index() % lanes_of_row != 0) return;
    const float lse = a.lse_from_nearest[entry];
    a.terms[entry] = {lse == -infinity ? infinity : lse * log2_of_e, delta};
  }
};

/// The sum of the threads' values, in their order, for thread 0. It overwrites the beginning of shared memory.
template <int threads>
ALIBI_LANE double sum_of_block(double own) {
  block_sync();
  shared_store(static_cast<uint32_t>(thread_index() * sizeof(double)), own);
  block_sync();
  double sum = 0;
  for (int i = 0; i < threads && thread_index() == 0; ++i) {
    sum += shared_load<double>(static_cast<uint32_t>(i * sizeof(double)));
  }
  return sum;
}

/// Replaces scores by weights, for a plain block of keys (place.h). The lane's rows are `row` and every eighth after
/// it, and its first key is `key`.
template <int m, int n>
ALIBI_LANE void make_plain_weights(const TileRows& tile, int row, int key, float rise, float scale2,
                                   const float (&lse2)[2 * m], Sums<n> (&p)[m]) {
  ALIBI_UNROLLED
  for (int r = 0; r < 2 * m; ++r) {
    const float first = fmaf(rise, static_cast<float>(key - tile.position(row + 8 * r)), -lse2[r]);
    ALIBI_UNROLLED
    for (int j = 0; j < n; ++j) {
      ALIBI_UNROLLED
      for (int e = 0; e < 2; ++e) {
        float& score = p[r / 2].at[j][r % 2 * 2 + e];
        score = power_of_2(fmaf(score, scale2, fmaf(rise, static_cast<float>(8 * j + e), first)));
      }
    }
  }
}

/// The index of a sequence's first row in BackwardArguments::terms.
ALIBI_LANE int64_t first_term(const Call& call, const SequenceRows& sequence, int head) {
  return (int64_t{sequence.batch} * call.heads + head) * call.queries + sequence.query_begin;
}

/// One thread block for each head. A sink's value is zero, so the gradient of its score is -weight delta.
struct AddSinks {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, blocks_at_once = 8, shared_bytes = threads * sizeof(double);

  static ALIBI_LANE void run(const Arguments& a) {
    const int head = block_index();
    double own = 0;
    for (int s = 0; s < a.call.sequence_count; ++s) {
      const SequenceRows sequence = a.call.sequences[s];
      const Place place(a.call, sequence, head);
      const RowTerms* const terms = a.terms + first_term(a.call, sequence, head);
      for (int row = thread_index(); row < sequence.queries; row += threads) {
        own -= power_of_2(sink_of(a.call, place, head, row) - terms[row].lse2) * terms[row].delta;
      }
    }
    const double sum = sum_of_block<threads>(own);
    if (thread_index() == 0) a.dsinks[head] += static_cast<float>(sum);
  }
};

/// The key blocks that the forward pass visited, among those that a tile of queries sees.
ALIBI_LANE Keys visited_blocks(const BackwardArguments& a, const SequenceRows& sequence, int head, int tile,
                               Keys blocks) {
  if (a.first_block == nullptr) return blocks;
  const int tiles = (sequence.queries + a.call.tile_rows - 1) / a.call.tile_rows;
  const int64_t entry = int64_t{sequence.tiles_before} * a.call.heads + int64_t{head} * tiles + tile;
  const int first = a.first_block[entry], last = a.last_block[entry];
  const int begin = first < blocks.begin ? blocks.begin : first > blocks.end ? blocks.end : first;
  return {begin, last < begin ? begin : last > blocks.end ? blocks.end : last};
}

/// One thread block for each head of each sequence. Finds the tiles that may visit a block of keys.
template <Form form>
struct FindVisitingTiles {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, blocks_at_once = 8, shared_bytes = threads * sizeof(VisitingTiles);
  static constexpr int none = 1 << 30;

  static ALIBI_LANE void run(const Arguments& a) {
    const int sequence_index = block_index() / a.call.heads, head = block_index() % a.call.heads;
    const SequenceRows sequence = a.call.sequences[sequence_index];
    const PlaceOf<form> place(a.call, sequence, head);
    const int rows = a.call.tile_rows, tiles = (sequence.queries + rows - 1) / rows;
    VisitingTiles own = {none, -none};
    if (a.ticket != nullptr && block_index() == 0 && thread_index() == 0) *a.ticket = 0;
    for (int tile = thread_index(); tile < tiles; tile += threads) {
      if (a.counters != nullptr) begin_tile(a, place, sequence, head, tile, tiles);
      const int last_row = (tile + 1) * rows < sequence.queries ? (tile + 1) * rows - 1 : sequence.queries - 1;
      const Keys blocks = visited_blocks(a, sequence, head, tile, blocks_of(place.seen(tile * rows, last_row)));
      if (blocks.begin == blocks.end) continue;
      const int first = tile - (blocks.end - 1) * block_keys / rows, last = tile - blocks.begin * block_keys / rows;
      own = {first < own.first ? first : own.first, last > own.last ? last : own.last};
    }
    shared_store(static_cast<uint32_t>(thread_index() * sizeof(VisitingTiles)), own);
    block_sync();
    if (thread_index() != 0) return;
    for (int i = 1; i < threads; ++i) {
      const auto other = shared_load<VisitingTiles>(static_cast<uint32_t>(i * sizeof(VisitingTiles)));
      own = {other.first < own.first ? other.first : own.first, other.last > own.last ? other.last : own.last};
    }
    a.visiting[block_index()] = own.first > own.last ? VisitingTiles{0, -1} : own;
  }

  /// For the combined gradient kernel: clears the counters of the tile, and dq of rows to which no block contributes.
  static ALIBI_LANE void begin_tile(const Arguments& a, const PlaceOf<form>& place, const SequenceRows& sequence,
                                    int head, int tile, int tiles) {
    const int rows = a.call.tile_rows, both_rows = a.both_rows, parts = rows / both_rows;
    const int64_t number = (int64_t{sequence.tiles_before} * a.call.heads + int64_t{head} * tiles + tile) * parts;
    for (int part = 0; part < parts; ++part) {
      a.counters[number + part] = 0;
      const int row = tile * rows + part * both_rows;
      const int end = row + both_rows < sequence.queries ? row + both_rows : sequence.queries;
      if (row >= end) continue;
      const Keys blocks = visited_blocks(a, sequence, head, tile, blocks_of(place.seen(row, end - 1)));
      if (blocks.begin < blocks.end) continue;
      for (int at = row; at < end; ++at) {
        uint16_t* const to = writable_rows_of(a.dq, sequence.batch, int64_t{sequence.query_begin} + at, head);
        for (int chunk = 0; chunk < a.call.head_dim / 8; ++chunk) *reinterpret_cast<Chunk*>(to + chunk * 8) = Chunk{};
      }
    }
  }
};

ALIBI_LANES_END
