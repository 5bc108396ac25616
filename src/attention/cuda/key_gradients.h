// Computes dk and dv (see gradients.h).
#pragma once

#include "attention/cuda/gradients.h"
#include "attention/cuda/steps.h"

ALIBI_LANES_BEGIN

/// A thread block has a block of keys of a key/value head, and each warp has 16 of these keys. It visits query rows in
/// steps, of one head of the group after the other. Scores are computed transposed, so that weights have the layout
/// that the products with dout and q need. With 256 columns a thread block computes one half of them, to save
/// registers.
template <Type type, int columns>
struct KeyGradients {
  using Arguments = BackwardArguments;
  using Operand = Tile<columns>;

  static constexpr int threads = 128;
  static constexpr int forward_rows = tile_rows(columns);
  static constexpr int step_rows = columns <= 64 ? 64 : columns <= 128 ? 32 : 16;
  static constexpr int n = step_rows / 8;
  static constexpr int own_columns = columns <= 128 ? columns : columns / 2;
  static constexpr int blocks_at_once = columns <= 128 ? 2 : 1;
  static constexpr int parts = key_parts(columns);

  static constexpr uint32_t step_bytes = Operand::bytes(step_rows);
  static constexpr uint32_t terms_bytes = step_rows * sizeof(RowTerms);
  static constexpr uint32_t k_at = 0;
  static constexpr uint32_t v_at = Operand::bytes(block_keys);
  static constexpr uint32_t q_at = 2 * v_at;
  static constexpr uint32_t dout_at = q_at + 2 * step_bytes;
  static constexpr uint32_t terms_at = dout_at + 2 * step_bytes;
  static constexpr int shared_bytes = static_cast<int>(terms_at + 2 * terms_bytes);

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = key_task(a.call, block_index(), parts);
    const SequenceRows sequence = a.call.sequences[task.sequence];
    if (task.tile >= key_blocks(sequence)) return;
    const int key = task.tile * block_keys, size = a.call.head_dim, warp_key = thread_index() / 32 * 16;
    copy_tile<Operand, block_keys, threads>(k_at, rows_of(a.call.k, sequence.batch, sequence.key_begin, task.head),
                                            a.call.k.row_stride, key, sequence.keys, size);
    copy_tile<Operand, block_keys, threads>(v_at, rows_of(a.call.v, sequence.batch, sequence.key_begin, task.head),
                                            a.call.v.row_stride, key, sequence.keys, size);
    const auto copy_step = [&](int head, int row, uint32_t stage) {
      const int at = thread_index_here();
      copy_tile<Operand, step_rows, threads>(q_at + stage * step_bytes,
                                             rows_of(a.call.q, sequence.batch, sequence.query_begin, head),
                                             a.call.q.row_stride, row, sequence.queries, size, at);
      copy_tile<Operand, step_rows, threads>(dout_at + stage * step_bytes,
                                             rows_of(a.dout, sequence.batch, sequence.query_begin, head),
                                             a.dout.row_stride, row, sequence.queries, size, at);
      if (at < step_rows) {
        const uint32_t to = terms_at + stage * terms_bytes + static_cast<uint32_t>(at * sizeof(RowTerms));
        if (row + at < sequence.queries) {
          copy8(to, a.terms + first_term(a.call, sequence, head) + row + at, true);
        } else {
          shared_store(to, RowTerms{infinity, 0});  // prevents overflow of the weights of rows beyond the end
        }
      }
    };
    Steps<forward_rows, step_rows, 1> steps(a, task);
    bool more = steps.advance(task, sequence);
    int head = steps.head, row = steps.step * step_rows;
    if (more) copy_step(head, row, 0);
    copies_commit();
    Sums<own_columns / 8> dk[1], dv[1];
    dk[0].clear();
    dv[0].clear();
    uint32_t stage = 0;
    ALIBI_NOT_UNROLLED
    while (more) {
      more = steps.advance(task, sequence);
      const int next_head = steps.head, next_row = steps.step * step_rows;
      copies_wait<0>();
      block_sync();  // now this step's rows have arrived, and no thread still reads the previous ones
      if (more) copy_step(next_head, next_row, stage ^ 1);
      copies_commit();
      const uint32_t q = q_at + stage * step_bytes, dout = dout_at + stage * step_bytes;
      const uint32_t terms = terms_at + stage * terms_bytes;
      Sums<n> p[1], ds[1];
      multiply_rows<type, Operand>(p, rows_of_16<Operand>(k_at, warp_key), columns_of_16<Operand>(q));
      make_weights(a, sequence, head, row, key, warp_key, terms, p[0]);
      Fragment<n> packed[1];
      pack_rows<type>(packed, p);
      add_product<type, Operand>(dv, packed, rows_of_16<Operand>(dout, 0), task.part * own_columns / 16);
      multiply_rows<type, Operand>(ds, rows_of_16<Operand>(v_at, warp_key), columns_of_16<Operand>(dout));
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          const float delta = term(terms, j, e).delta;
          ds[0].at[j][e] = p[0].at[j][e] * (ds[0].at[j][e] - delta);
          ds[0].at[j][e + 2] = p[0].at[j][e + 2] * (ds[0].at[j][e + 2] - delta);
        }
      }
      pack_rows<type>(packed, ds);
      add_product<type, Operand>(dk, packed, rows_of_16<Operand>(q, 0), task.part * own_columns / 16);
      head = next_head;
      row = next_row;
      stage ^= 1;
    }
    copies_wait<0>();
    block_sync();
    const float scales[2] = {a.call.scale, a.call.scale}, ones[2] = {1, 1};
    const int column = task.part * own_columns;
    write_rows<type, Operand>(dk, scales, k_at, warp_key,
                              writable_rows_of(a.dk, sequence.batch, sequence.key_begin, task.head), a.dk.row_stride,
                              key + warp_key, sequence.keys, column, size);
    write_rows<type, Operand>(dv, ones, v_at, warp_key,
                              writable_rows_of(a.dv, sequence.batch, sequence.key_begin, task.head), a.dv.row_stride,
                              key + warp_key, sequence.keys, column, size);
  }

  static ALIBI_LANE int lane_row(int j, int e) { return thread_index() % 4 * 2 + 8 * j + e; }
  static ALIBI_LANE RowTerms term(uint32_t terms, int j, int e) {
    return shared_load<RowTerms>(terms + static_cast<uint32_t>(lane_row(j, e) * sizeof(RowTerms)));
  }

  /// Replaces transposed scores by weights.
  static ALIBI_LANE void make_weights(const Arguments& a, const SequenceRows& sequence, int head, int row, int key,
                                      int warp_key, uint32_t terms, Sums<n>& p) {
    const Place place(a.call, sequence, head);
    const TileRows tile(place, row, sequence.queries - row < step_rows ? sequence.queries - row : step_rows);
    const int end = key + block_keys, own_key = warp_key + thread_index() % 32 / 4;
    if (tile.is_plain(key, end)) {
      const float rise = tile.rise(end);
      const float bias = rise * static_cast<float>(own_key), bias_below = rise * static_cast<float>(own_key + 8);
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          const float base =
              fmaf(rise, static_cast<float>(tile.position(lane_row(j, e)) - key), term(terms, j, e).lse2);
          p.at[j][e] = power_of_2(fmaf(p.at[j][e], a.call.scale2, bias) - base);
          p.at[j][e + 2] = power_of_2(fmaf(p.at[j][e + 2], a.call.scale2, bias_below) - base);
        }
      }
      return;
    }
    ALIBI_UNROLLED
    for (int j = 0; j < n; ++j) {
      ALIBI_UNROLLED
      for (int e = 0; e < 2; ++e) {
        const RowSight sight(place, row + lane_row(j, e));
        const float lse2 = term(terms, j, e).lse2;
        ALIBI_UNROLLED
        for (int below = 0; below < 2; ++below) {
          float& score = p.at[j][e + 2 * below];
          score = sight.biased(place.before, place.after, key + own_key + 8 * below, score * a.call.scale2);
          score = power_of_2(score - lse2);
        }
      }
    }
  }
};

ALIBI_LANES_END
