// Computes dk and dv (see gradients.h).
#pragma once

#include "attention/cuda/gradients.h"
#include "attention/cuda/steps.h"

ALIBI_LANES_BEGIN

/// A thread block has a block of keys of a key/value head, and each warp has 16 of these keys. It visits query rows in
/// steps, of one head of the group after the other. Scores are computed transposed, so that weights have the layout
/// that the products with dout and q need. With 256 columns a thread block computes one half of them, to save
/// registers.
template <Type type, int columns, Form form>
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
  /// With gates, for each stage: those of the rows, and of the tile that they are.
  static constexpr uint32_t gate_rows_at = terms_at + 2 * terms_bytes;
  static constexpr uint32_t gate_row_bytes = step_rows * sizeof(GateRow);
  static constexpr uint32_t gates_at = gate_rows_at + 2 * gate_row_bytes;
  static constexpr int shared_bytes =
      static_cast<int>(form == Form::gates ? gates_at + 2 * sizeof(TileGates<Form::gates>) : gate_rows_at);

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
        if constexpr (form == Form::gates) {
          const GatedPlace place(a.call, sequence, head);
          const TileGates<form> gates(place, row);
          shared_store(gate_row_at(stage, at), GateRow(place, gates, row + at));
          if (at == 0) shared_store(gates_of(stage), gates);
        }
      }
    };
    Steps<forward_rows, step_rows, 1, form> steps(a, task);
    bool more = steps.advance(task, sequence);
    int head = steps.head, row = steps.step * step_rows;
    if (more) copy_step(head, row, 0);
    copies_commit();
    Sums<own_columns / 8> dk[1], dv[1];
    dk[0].clear();
    dv[0].clear();
    [[maybe_unused]] float key_sums[2] = {0, 0};
    if constexpr (form == Form::gates) clear_key_sums(a, task, sequence);
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
      make_weights(a, sequence, head, row, key, warp_key, stage, p[0]);
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
      if constexpr (form == Form::gates) {
        ALIBI_UNROLLED
        for (int j = 0; j < n; ++j) {
          key_sums[0] += ds[0].at[j][0] + ds[0].at[j][1];
          key_sums[1] += ds[0].at[j][2] + ds[0].at[j][3];
        }
        if (!more || next_head != head) write_key_sums(a, task, sequence, head, key_sums);
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

  static ALIBI_LANE uint32_t gate_row_at(uint32_t stage, int row) {
    return gate_rows_at + stage * gate_row_bytes + static_cast<uint32_t>(row * sizeof(GateRow));
  }
  static ALIBI_LANE uint32_t gates_of(uint32_t stage) {
    return gates_at + stage * static_cast<uint32_t>(sizeof(TileGates<form>));
  }

  static ALIBI_LANE float* key_sums_of(const Arguments& a, const Task& task, const SequenceRows& sequence, int head) {
    return a.key_sums + (int64_t{sequence.batch} * a.call.heads + head) * a.keys + sequence.key_begin +
           task.tile * block_keys;
  }
  /// Heads that visit no row of the keys keep these zeros.
  static ALIBI_LANE void clear_key_sums(const Arguments& a, const Task& task, const SequenceRows& sequence) {
    const int group = a.call.heads / a.call.kv_heads, key = thread_index();
    if (a.key_sums == nullptr || task.part > 0 || key >= block_keys || task.tile * block_keys + key >= sequence.keys) {
      return;
    }
    for (int head = task.head * group; head < (task.head + 1) * group; ++head) {
      key_sums_of(a, task, sequence, head)[key] = 0;
    }
  }
  /// Writes the sums of a head, which clear_key_sums() cleared before the last barrier.
  static ALIBI_LANE void write_key_sums(const Arguments& a, const Task& task, const SequenceRows& sequence, int head,
                                        float (&sums)[2]) {
    ALIBI_UNROLLED
    for (int below = 0; below < 2; ++below) {
      const float sum = sum_of_row(sums[below]);
      sums[below] = 0;
      const int key = thread_index() / 32 * 16 + thread_index() % 32 / 4 + 8 * below;
      if (a.key_sums == nullptr || task.part > 0 || thread_index() % 4 != 0 ||
          task.tile * block_keys + key >= sequence.keys) {
        continue;
      }
      key_sums_of(a, task, sequence, head)[key] = sum;
    }
  }

  static ALIBI_LANE PairGates<form> pair_gates(uint32_t stage, int row, int position, int key) {
    if constexpr (form == Form::gates) {
      const auto gates = shared_load<TileGates<form>>(gates_of(stage));
      return PairGates<form>(gates, shared_load<GateRow>(gate_row_at(stage, row)), position, key);
    } else {
      return PairGates<form>(stage, row, position, key);
    }
  }

  /// Replaces transposed scores by weights.
  static ALIBI_LANE void make_weights(const Arguments& a, const SequenceRows& sequence, int head, int row, int key,
                                      int warp_key, uint32_t stage, Sums<n>& p) {
    const uint32_t terms = terms_at + stage * terms_bytes;
    const PlaceOf<form> place(a.call, sequence, head);
    const TileRows tile(place, row, sequence.queries - row < step_rows ? sequence.queries - row : step_rows);
    const int end = key + block_keys, own_key = warp_key + thread_index() % 32 / 4;
    if (tile.template is_plain<form>(key, end)) {
      const float rise = tile.rise(end);
      float bias = rise * static_cast<float>(own_key), bias_below = rise * static_cast<float>(own_key + 8);
      float between = 0;
      if constexpr (form == Form::gates) {
        const auto gates = shared_load<TileGates<form>>(gates_of(stage));
        bias += gates.blocks[key / block_keys].to_end[own_key];
        bias_below += gates.blocks[key / block_keys].to_end[own_key + 8];
        between = gates.since(key / block_keys + 1);
      }
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float base = fmaf(rise, static_cast<float>(tile.position(lane_row(j, e)) - key), term(terms, j, e).lse2);
          if constexpr (form == Form::gates) {
            base -= between + shared_load<GateRow>(gate_row_at(stage, lane_row(j, e))).from_tile;
          }
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
        const PairGates<form> pairs = pair_gates(stage, lane_row(j, e), sight.position, key);
        const float lse2 = term(terms, j, e).lse2;
        ALIBI_UNROLLED
        for (int below = 0; below < 2; ++below) {
          float& score = p.at[j][e + 2 * below];
          score = pairs.add(score * a.call.scale2, own_key + 8 * below);
          score = sight.biased(place.before, place.after, key + own_key + 8 * below, score);
          score = power_of_2(score - lse2);
        }
      }
    }
  }
};

/// One thread block for each head of each sequence. The gate of key t is in the scores of rows i and keys j with
/// i >= t > j. The sum of ds over these pairs is that of the rows from t on, less that of the columns from t on. Each
/// thread has a range of keys.
struct AddGates {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, blocks_at_once = 8;

  struct Sum {
    double sum;  ///< from the last key of a range down to its first one, or to the first document that begins there
    int begins;  ///< whether one begins

    ALIBI_LANE void add(double next, bool begun) {
      sum = begun ? 0 : sum + next;  // no pair reaches over it
      begins = begins != 0 || begun;
    }
  };
  static constexpr int shared_bytes = threads * sizeof(Sum);

  static ALIBI_LANE void run(const Arguments& a) {
    const int head = block_index() % a.call.heads;
    const SequenceRows sequence = a.call.sequences[block_index() / a.call.heads];
    const GateBlock* const gates = a.call.gates + first_entry(a.call, sequence, head);
    const auto begins = [&](int key) { return key == 0 || gates[key / block_keys].documents[key % block_keys] == key; };
    const int each = (sequence.keys + threads - 1) / threads;
    const int begin = thread_index() * each < sequence.keys ? thread_index() * each : sequence.keys;
    const int end = begin + each < sequence.keys ? begin + each : sequence.keys;
    Sum own = {0, 0}, later = {0, 0};
    for (int key = end - 1; key >= begin; --key) own.add(of_key(a, sequence, head, key), begins(key));
    shared_store(static_cast<uint32_t>(thread_index() * sizeof(Sum)), own);
    block_sync();
    for (int i = threads - 1; i > thread_index(); --i) {
      const auto other = shared_load<Sum>(static_cast<uint32_t>(i * sizeof(Sum)));
      later.sum = other.begins != 0 ? other.sum : later.sum + other.sum;
    }
    for (int key = end - 1; key >= begin; --key) {
      later.add(of_key(a, sequence, head, key), begins(key));
      const int64_t row = sequence.batch * a.keys + sequence.key_begin + key;
      a.dlog_decay[row * a.call.heads + head] += static_cast<float>(later.sum);
    }
  }

  /// The sum of ds over the rows whose position is that of the key, less that over its column.
  static ALIBI_LANE double of_key(const Arguments& a, const SequenceRows& sequence, int head, int key) {
    const float* const rows = a.row_sums + first_term(a.call, sequence, head);
    const int64_t heads_before = int64_t{sequence.batch} * a.call.heads + head, row = key - sequence.query_offset;
    const int64_t end = key == sequence.keys - 1 ? sequence.queries : clamp(row + 1, 0, sequence.queries);
    double sum = -static_cast<double>(a.key_sums[heads_before * a.keys + sequence.key_begin + key]);
    for (int64_t i = row > 0 ? row : 0; i < end; ++i) sum += static_cast<double>(rows[i]);
    return sum;
  }
};

ALIBI_LANES_END
