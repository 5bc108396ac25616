// The backward pass. With p the weights, recomputed from the log-sum-exps of the forward pass,
//
//   dp = dout v'    ds = p (dp - delta)    delta = rowsum(dout out)
//   dq = scale ds k    dk = scale ds' q    dv = p' dout    dslope = -sum of ds |distance|
//
// One kernel owns a tile of query rows and makes dq, another a block of keys of a key/value head and makes dk and dv,
// so nothing is added from two sides: no atomics, and the same bits always. It costs seven products instead of five.
// Both go by the key blocks that the forward pass visited.
#pragma once

#include "attention/cuda/place.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

/// A thread for 8 columns of up to 256: lse2 and delta of each query row.
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
    const float lse = a.near_lse[entry];
    a.terms[entry] = {lse == -infinity ? infinity : lse * log2_of_e, delta};
  }
};

ALIBI_LANE int64_t first_term(const Call& call, const SequenceRows& sequence, int head) {
  return (int64_t{sequence.batch} * call.heads + head) * call.queries + sequence.query_begin;
}

/// Of the key blocks that a tile of queries sees, those that the forward pass visited.
ALIBI_LANE Keys visited_blocks(const BackwardArguments& a, const SequenceRows& sequence, int head, int tile,
                               Keys blocks) {
  if (a.first_block == nullptr) return blocks;
  const int tiles = (sequence.queries + a.call.tile_rows - 1) / a.call.tile_rows;
  const int64_t entry = int64_t{sequence.tiles_before} * a.call.heads + int64_t{head} * tiles + tile;
  const int first = a.first_block[entry], last = a.last_block[entry];
  const int begin = first < blocks.begin ? blocks.begin : first > blocks.end ? blocks.end : first;
  return {begin, last < begin ? begin : last > blocks.end ? blocks.end : last};
}

ALIBI_LANES_END
