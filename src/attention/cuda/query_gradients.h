// Computes dq and the gradients of slopes (see gradients.h).
#pragma once

#include "attention/cuda/gradients.h"

ALIBI_LANES_BEGIN

/// A thread block owns a tile of query rows, as in the forward pass.
template <Type type, int columns, Form form>
struct QueryGradients {
  using Arguments = BackwardArguments;
  using Operand = Tile<columns>;

  static constexpr int threads = 128;
  static constexpr int rows = tile_rows(columns);
  static constexpr int m = rows / 64;
  /// Processes this many keys at a time, to save registers and shared memory: with 128 columns, two thread blocks fit
  /// on an SM of 164 KB.
  static constexpr int step_keys = columns < 128 ? 32 : 16;
  static constexpr int n = step_keys / 8;
  static constexpr int blocks_at_once = columns <= 32 ? 3 : columns <= 128 ? 2 : 1;

  static constexpr uint32_t step_bytes = Operand::bytes(step_keys);
  static constexpr uint32_t q_at = 0;
  static constexpr uint32_t dout_at = Operand::bytes(rows);
  static constexpr uint32_t k_at = 2 * dout_at;
  static constexpr uint32_t v_at = k_at + 2 * step_bytes;
  static constexpr uint32_t sights_at = v_at + 2 * step_bytes;
  static constexpr uint32_t gate_rows_at = sights_at + rows * sizeof(Keys),
                            gates_at = gate_rows_at + rows * sizeof(GateRow);
  static constexpr int shared_bytes =
      static_cast<int>(form == Form::gates ? gates_at + sizeof(TileGates<Form::gates>) : gate_rows_at);
  // Two blocks on an SM of A100; each reserves 1 KB.
  static_assert(columns > 128 || form == Form::gates || 2 * (shared_bytes + 1024) <= 164 << 10);

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = query_task(a.call, block_index());
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const PlaceOf<form> place(a.call, sequence, task.head);
    const int row = task.tile * rows, lane = thread_index() % 32, warp_row = thread_index() / 32 * 16 * m;
    const TileRows tile(place, row, sequence.queries - row < rows ? sequence.queries - row : rows);
    if (thread_index() < rows) {
      const int own = row + thread_index();
      shared_store(sights_at + static_cast<uint32_t>(thread_index() * sizeof(Keys)), place.seen(own, own));
      if constexpr (form == Form::gates) {
        const TileGates<form> gates(place, row);
        shared_store(gate_row_at(thread_index()), GateRow(place, gates, own));
        if (thread_index() == 0) shared_store(gates_at, gates);
      }
    }
    const int kv_head = task.head / (a.call.heads / a.call.kv_heads), size = a.call.head_dim;
    copy_tile<Operand, rows, threads>(q_at, rows_of(a.call.q, sequence.batch, sequence.query_begin, task.head),
                                      a.call.q.row_stride, row, sequence.queries, size);
    copy_tile<Operand, rows, threads>(dout_at, rows_of(a.dout, sequence.batch, sequence.query_begin, task.head),
                                      a.dout.row_stride, row, sequence.queries, size);
    const uint16_t* const keys = rows_of(a.call.k, sequence.batch, sequence.key_begin, kv_head);
    const uint16_t* const values = rows_of(a.call.v, sequence.batch, sequence.key_begin, kv_head);
    const auto copy_step = [&](int key, uint32_t stage) {
      copy_tile<Operand, step_keys, threads>(k_at + stage, keys, a.call.k.row_stride, key, sequence.keys, size);
      copy_tile<Operand, step_keys, threads>(v_at + stage, values, a.call.v.row_stride, key, sequence.keys, size);
    };
    const Keys blocks =
        visited_blocks(a, sequence, task.head, task.tile, blocks_of(place.seen(row, row + tile.count - 1)));
    const int end = blocks.end * block_keys < sequence.keys ? blocks.end * block_keys : sequence.keys;
    int key = blocks.begin * block_keys;
    if (key < end) copy_step(key, 0);
    copies_commit();

    const int own_row = warp_row + lane / 4;
    float lse2[2 * m], start[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const int at = own_row + 8 * r;
      const int64_t first = first_term(a.call, sequence, task.head) + row;
      const RowTerms terms = at < tile.count ? a.terms[first + at] : RowTerms{infinity, 0};
      lse2[r] = terms.lse2;
      start[r] = -terms.delta;
    }
    Sums<columns / 8> dq[m];
    ALIBI_UNROLLED
    for (int i = 0; i < m; ++i) dq[i].clear();
    double slope_sum = 0;
    [[maybe_unused]] float row_sums[2 * m] = {};
    uint32_t stage = 0;
    ALIBI_NOT_UNROLLED
    for (; key < end; key += step_keys, stage ^= step_bytes) {
      copies_wait<0>();
      block_sync();  // now this step's keys have arrived, and no thread still reads the previous ones
      if (key + step_keys < end) copy_step(key + step_keys, stage ^ step_bytes);
      copies_commit();
      Sums<n> p[m], ds[m];
      multiply_rows<type, Operand>(p, rows_of_16<Operand>(q_at, warp_row), columns_of_16<Operand>(k_at + stage));
      make_weights(a, tile, own_row, key, lse2, p);
      multiply_rows<type, Operand>(ds, rows_of_16<Operand>(dout_at, warp_row), columns_of_16<Operand>(v_at + stage),
                                   start);
      ALIBI_UNROLLED
      for (int i = 0; i < m; ++i) {
        ALIBI_UNROLLED
        for (int j = 0; j < n; ++j) {
          ALIBI_UNROLLED
          for (int e = 0; e < 4; ++e) ds[i].at[j][e] *= p[i].at[j][e];
        }
      }
      if constexpr (form == Form::gates) {
        ALIBI_UNROLLED
        for (int r = 0; r < 2 * m; ++r) {
          ALIBI_UNROLLED
          for (int j = 0; j < n; ++j) row_sums[r] += ds[r / 2].at[j][r % 2 * 2] + ds[r / 2].at[j][r % 2 * 2 + 1];
        }
      }
      if (a.slope_sums != nullptr) slope_sum += slope_part(a, tile, own_row, key, ds);
      Fragment<n> packed[m];
      pack_rows<type>(packed, ds);
      add_product<type, Operand>(dq, packed, rows_of_16<Operand>(k_at + stage, 0));
    }
    copies_wait<0>();
    block_sync();  // without key blocks, the keys arrive only here
    float factors[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) factors[r] = a.call.scale;
    write_rows<type, Operand>(dq, factors, q_at, warp_row,
                              writable_rows_of(a.dq, sequence.batch, sequence.query_begin, task.head), a.dq.row_stride,
                              row + warp_row, sequence.queries, 0, size);
    if constexpr (form == Form::gates) {
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        const int at = own_row + 8 * r;
        const float sum = sum_of_row(row_sums[r]);
        if (a.row_sums == nullptr || lane % 4 != 0 || at >= tile.count) continue;
        a.row_sums[first_term(a.call, sequence, task.head) + row + at] = sum;
      }
    }
    if (a.slope_sums == nullptr) return;
    const double sum = sum_of_block<threads>(slope_sum);
    if (thread_index() != 0) return;
    const int tiles = (sequence.queries + rows - 1) / rows;
    a.slope_sums[int64_t{sequence.tiles_before} * a.call.heads + int64_t{task.head} * tiles + task.tile] = sum;
  }

  /// Replaces scores by weights.
  static ALIBI_LANE void make_weights(const Arguments& a, const TileRows& tile, int own_row, int key,
                                      const float (&lse2)[2 * m], Sums<n> (&p)[m]) {
    const int own_key = lane_column(), end = key + step_keys;
    if (tile.template is_plain<form>(key, end)) {
      if constexpr (form == Form::slopes) {
        make_plain_weights(tile, own_row, key + own_key, tile.rise(end), a.call.scale2, lse2, p);
      } else {
        make_gated_weights(a, tile, own_row, key, lse2, p);
      }
      return;
    }
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const RowSight sight(shared_load<Keys>(sights_at + static_cast<uint32_t>((own_row + 8 * r) * sizeof(Keys))),
                           tile.position(own_row + 8 * r));
      const PairGates<form> pairs = pair_gates(own_row + 8 * r, sight.position, key);
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          const int at = key + own_key + 8 * j + e;
          float& score = p[r / 2].at[j][r % 2 * 2 + e];
          score = sight.biased(tile.before, tile.after, at, pairs.add(score * a.call.scale2, at));
          score = power_of_2(score - lse2[r]);
        }
      }
    }
  }

  static ALIBI_LANE uint32_t gate_row_at(int row) {
    return gate_rows_at + static_cast<uint32_t>(row * sizeof(GateRow));
  }
  static ALIBI_LANE PairGates<form> pair_gates(int row, int position, int key) {
    if constexpr (form == Form::gates) {
      const auto gates = shared_load<TileGates<form>>(gates_at);
      return PairGates<form>(gates, shared_load<GateRow>(gate_row_at(row)), position, key);
    } else {
      return PairGates<form>(row, position, key);
    }
  }

  /// make_plain_weights() with gates.
  static ALIBI_LANE void make_gated_weights(const Arguments& a, const TileRows& tile, int own_row, int key,
                                            const float (&lse2)[2 * m], Sums<n> (&p)[m]) {
    const auto gates = shared_load<TileGates<Form::gates>>(gates_at);
    const int block = key / block_keys, own_key = lane_column();
    const float* const to_end = gates.blocks[block].to_end + key % block_keys + own_key;
    const float between = gates.since(block + 1);
    float first[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const float from_tile = shared_load<GateRow>(gate_row_at(own_row + 8 * r)).from_tile;
      const auto distance = static_cast<float>(tile.position(own_row + 8 * r) - key - own_key);
      first[r] = (between + from_tile - lse2[r]) - tile.before * distance;
    }
    ALIBI_UNROLLED
    for (int j = 0; j < n; ++j) {
      ALIBI_UNROLLED
      for (int e = 0; e < 2; ++e) {
        const float of_key = fmaf(tile.before, static_cast<float>(8 * j + e), to_end[8 * j + e]);
        ALIBI_UNROLLED
        for (int r = 0; r < 2 * m; ++r) {
          float& score = p[r / 2].at[j][r % 2 * 2 + e];
          score = power_of_2(fmaf(score, a.call.scale2, of_key + first[r]));
        }
      }
    }
  }

  static ALIBI_LANE double slope_part(const Arguments& a, const TileRows& tile, int own_row, int key,
                                      const Sums<n> (&ds)[m]) {
    float sum = 0;
    for (int r = 0; r < 2 * m; ++r) {
      const int distance = tile.position(own_row + 8 * r) - key - lane_column();
      for (int j = 0; j < n; ++j) {
        for (int e = 0; e < 2; ++e) {
          const auto there = static_cast<float>(distance - 8 * j - e);
          const float counted = there > 0 ? there : a.slopes_symmetric != 0 ? -there : 0.0f;
          sum = fmaf(-ds[r / 2].at[j][r % 2 * 2 + e], counted, sum);
        }
      }
    }
    return sum;
  }

  static ALIBI_LANE int lane_column() { return thread_index() % 4 * 2; }
};

/// One thread block for each slope. Sums the slope's gradients of all tiles in a fixed order.
struct AddSlopes {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, blocks_at_once = 8, shared_bytes = threads * sizeof(double);

  static ALIBI_LANE void run(const Arguments& a) {
    const int head = block_index() % a.call.heads, batch = block_index() / a.call.heads;
    double own = 0;
    for (int s = 0; s < a.call.sequence_count; ++s) {
      const SequenceRows sequence = a.call.sequences[s];
      if (a.slopes_per_batch != 0 && sequence.batch != batch) continue;
      const int tiles = (sequence.queries + a.call.tile_rows - 1) / a.call.tile_rows;
      const double* const sums = a.slope_sums + int64_t{sequence.tiles_before} * a.call.heads + int64_t{head} * tiles;
      for (int tile = thread_index(); tile < tiles; tile += threads) own += sums[tile];
      if (a.call.sinks != nullptr) own -= beyond_sums(a, sequence, head);
    }
    const double sum = sum_of_block<threads>(own);
    if (thread_index() == 0) a.dslopes[block_index()] += static_cast<float>(sum);
  }

  /// The tiles count distances from the nearest key. Without a sink that gives the same sum, because a row of ds sums
  /// to zero. With a sink it sums to the sink's weight times delta, which is multiplied here by the distance left out.
  static ALIBI_LANE double beyond_sums(const Arguments& a, const SequenceRows& sequence, int head) {
    const Place place(a.call, sequence, head);
    const RowTerms* const terms = a.terms + first_term(a.call, sequence, head);
    double sum = 0;
    for (int row = thread_index(); row < sequence.queries; row += threads) {
      const int64_t outside = place.offset + row - place.position(row);
      if (outside == 0 || (outside < 0 && a.slopes_symmetric == 0)) continue;
      const float weight = power_of_2(sink_of(a.call, place, head, row) - terms[row].lse2);
      sum += static_cast<double>(outside < 0 ? -outside : outside) * static_cast<double>(weight * terms[row].delta);
    }
    return sum;
  }
};

ALIBI_LANES_END
