// Computes dq, dk and dv in one kernel, for up to 128 columns (see gradients.h).
#pragma once

#include "attention/cuda/gradients.h"
#include "attention/cuda/steps.h"

ALIBI_LANES_BEGIN

/// A thread block sums dk and dv for 128 keys of a key/value head. It visits 64 or 128 query rows at a time, of one
/// head of the group after the other. Weights and ds pass through shared memory, because the five products distribute
/// their operands over the warps in different ways. Loads from shared memory take most of the time, and a warp needs
/// the fewest for squares:
///
///   scores, dp   each warp 32 rows and a quarter of the keys, or half of them with 128 rows
///   dk, dv       each warp 32 keys and half of the columns
///   dq           each warp 32 rows and a part of the columns
///
/// dq of these rows is the sum of parts from several thread blocks. They add their parts in float32 one after the
/// other, from the last keys to the first. A counter for the rows determines which block is next. The last block writes
/// dq. So the order, and therefore every bit, is the same in every run. A block takes its task by a ticket, so it only
/// waits for blocks that started earlier. Each block starts with the first rows that see its keys, so causal blocks
/// reach a tile one after the other without waiting.
template <Type type, int columns, int both_rows>
struct BothGradients {
  using Arguments = BackwardArguments;
  using Operand = Tile<columns>;

  static constexpr int threads = 256, warps = threads / 32;
  static constexpr int rows = both_rows, keys = both_keys, blocks = keys / block_keys;
  using Weights = Tile<keys>;
  static constexpr int m = 2, row_groups = rows / (16 * m);  ///< for scores and dp, each warp has 16 * m rows
  static constexpr int warp_keys = keys / (warps / row_groups), n = warp_keys / 8;
  static constexpr int key_m = 2, key_groups = keys / (16 * key_m);  ///< for dk and dv, each warp has 16 * key_m keys
  static constexpr int key_columns = columns / (warps / key_groups);
  static constexpr int dq_m = columns * rows < 64 * 64 ? 1 : 2;  ///< for dq, each warp has 16 * dq_m rows
  static constexpr int dq_groups = rows / (16 * dq_m), dq_columns = columns / (warps / dq_groups);
  static constexpr int tile = tile_rows(columns), parts = tile / rows;  ///< tile size of the forward pass
  static constexpr int blocks_at_once = 1;
  /// Threads with tasks of their own. They are in different warps, so that no warp waits for memory more often than
  /// others.
  static constexpr int describes_step = 0, raises_counter = 32, waits_for_turn = 64;
  static_assert(block_keys % warp_keys == 0 && block_keys % (16 * key_m) == 0);
  static_assert(key_columns % 16 == 0 && dq_columns % 16 == 0);

  /// Kept in shared memory to save registers.
  struct Known {
    Task task;
    SequenceRows sequence;
  };
  /// The place of these keys in the order of the blocks that add to the rows, from the last block to the first.
  struct Turn {
    int number, last;
    int counter;  ///< index of the rows' counter and of their sums
  };
  struct alignas(16) Step {
    TileRows there;
    Keys visited;  ///< in blocks
    Turn turn;
    int head, row;

    static ALIBI_LANE Step at(uint32_t stage) {
      return shared_load<Step>(step_at + stage * static_cast<uint32_t>(sizeof(Step)));
    }
  };

  static constexpr uint32_t stage_bytes = Operand::bytes(rows), terms_bytes = rows * sizeof(RowTerms);
  static constexpr uint32_t k_at = 0;
  static constexpr uint32_t block_bytes = Operand::bytes(block_keys);
  static constexpr uint32_t v_at = blocks * block_bytes;
  static constexpr uint32_t q_at = 2 * v_at;
  static constexpr uint32_t dout_at = q_at + 2 * stage_bytes;
  static constexpr uint32_t p_at = dout_at + 2 * stage_bytes;
  static constexpr uint32_t ds_at = p_at + Weights::bytes(rows);
  static constexpr uint32_t terms_at = ds_at + Weights::bytes(rows);
  static constexpr uint32_t known_at = terms_at + 2 * terms_bytes;
  static constexpr uint32_t step_at = known_at + 64;  ///< offsets within each stage
  static constexpr int shared_bytes = static_cast<int>(step_at) + 2 * sizeof(Step);
  static_assert(sizeof(Known) <= 64);
  static_assert(shared_bytes == both_shared_bytes(columns, rows));

  const Arguments& a;
  Sums<key_columns / 8> dk[key_m], dv[key_m];
  int to_raise = -1;  ///< the counter of the previous rows, raised when all threads have stored their sums

  static ALIBI_LANE void run(const Arguments& a) {
    if (thread_index() == 0) {
      const Task task = both_task(a.call, take_ticket(a.ticket));
      shared_store(known_at, Known{task, a.call.sequences[task.sequence]});
    }
    block_sync();
    const Known known = BothGradients::known();
    if (known.task.tile >= key_blocks(known.sequence) || known.task.tile % blocks != 0) return;
    BothGradients(a).go();
  }

  ALIBI_LANE explicit BothGradients(const Arguments& arguments) : a(arguments) {}

  static ALIBI_LANE Known known() { return shared_load<Known>(known_at); }

  ALIBI_LANE void go() {
    const auto [task, sequence] = known();
    const int key = task.tile * block_keys, size = a.call.head_dim;
    copy_tile<Operand, keys, threads>(k_at, rows_of(a.call.k, sequence.batch, sequence.key_begin, task.head),
                                      a.call.k.row_stride, key, sequence.keys, size);
    copy_tile<Operand, keys, threads>(v_at, rows_of(a.call.v, sequence.batch, sequence.key_begin, task.head),
                                      a.call.v.row_stride, key, sequence.keys, size);
    Steps<tile, rows, blocks> steps(a, task);
    bool more = steps.advance(task, sequence);
    if (more) copy_step(steps.head, steps.step * rows, 0);
    copies_commit();
    ALIBI_UNROLLED
    for (int i = 0; i < key_m; ++i) {
      dk[i].clear();
      dv[i].clear();
    }
    uint32_t stage = 0;
    ALIBI_NOT_UNROLLED
    while (more) {
      more = steps.advance(known().task, known().sequence);
      copies_wait<0>();
      block_sync();  // now this step's rows have arrived, and no thread still reads the previous rows or their p and ds
      raise();
      if (more) copy_step(steps.head, steps.step * rows, stage ^ 1);
      copies_commit();
      take_rows(stage);
      stage ^= 1;
    }
    copies_wait<0>();
    block_sync();
    raise();
    write_keys();
  }

  ALIBI_LANE void write_keys() {
    const auto [task, sequence] = known();
    const int key = task.tile * block_keys, size = a.call.head_dim, warp = thread_index() / 32;
    const int own_key = warp % key_groups * 16 * key_m, first = warp / key_groups * key_columns;
    const int last = first + key_columns < size ? first + key_columns : size;
    float scales[2 * key_m], ones[2 * key_m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * key_m; ++r) {
      scales[r] = a.call.scale;
      ones[r] = 1;
    }
    write_rows<type, Operand>(dk, scales, k_at, own_key,
                              writable_rows_of(a.dk, sequence.batch, sequence.key_begin, task.head), a.dk.row_stride,
                              key + own_key, sequence.keys, first, last, first / 8);
    write_rows<type, Operand>(dv, ones, v_at, own_key,
                              writable_rows_of(a.dv, sequence.batch, sequence.key_begin, task.head), a.dv.row_stride,
                              key + own_key, sequence.keys, first, last, first / 8);
  }

  ALIBI_LANE void raise() {
    if (to_raise >= 0 && thread_index() == raises_counter) raise_count(a.counters + to_raise);
    to_raise = -1;
  }

  ALIBI_LANE void copy_step(int head, int row, uint32_t stage) const {
    const SequenceRows sequence = known().sequence;
    const int count = sequence.queries - row < rows ? sequence.queries - row : rows;
    if (thread_index() == describes_step) {
      const Place place(a.call, sequence, head);
      const Keys seen = blocks_of(place.seen(row, row + count - 1));
      const Keys visited = visited_blocks(a, sequence, head, row / tile, seen);
      shared_store(step_at + stage * static_cast<uint32_t>(sizeof(Step)),
                   Step{TileRows(place, row, count), visited, turn_at(sequence, visited, head, row), head, row});
    }
    const int size = a.call.head_dim, at = thread_index_here();
    copy_tile<Operand, rows, threads>(q_at + stage * stage_bytes,
                                      rows_of(a.call.q, sequence.batch, sequence.query_begin, head),
                                      a.call.q.row_stride, row, sequence.queries, size, at);
    copy_tile<Operand, rows, threads>(dout_at + stage * stage_bytes,
                                      rows_of(a.dout, sequence.batch, sequence.query_begin, head), a.dout.row_stride,
                                      row, sequence.queries, size, at);
    if (at >= rows) return;
    const uint32_t to = terms_at + stage * terms_bytes + static_cast<uint32_t>(at * sizeof(RowTerms));
    if (row + at < sequence.queries) {
      copy8(to, a.terms + first_term(a.call, sequence, head) + row + at, true);
    } else {
      shared_store(to, RowTerms{infinity, 0});  // prevents overflow of the weights of rows beyond the end
    }
  }

  /// The five products for some rows of a head.
  ALIBI_LANE void take_rows(uint32_t stage) {
    make_scores(stage);
    wait_for_turn(stage);
    block_sync();  // now p, ds and the sums of the earlier blocks are complete
    add_products(stage);
  }

  /// Computes p and ds and writes them to shared memory.
  ALIBI_LANE void make_scores(uint32_t stage) const {
    const int warp = thread_index_here() / 32, key = warp / row_groups * warp_keys;
    if (is_visited(key / block_keys, stage)) make_p_and_ds(warp % row_groups * 16 * m, key, stage);
  }

  /// The products that use p and ds.
  ALIBI_LANE void add_products(uint32_t stage) {
    const int thread = thread_index_here(), warp = thread / 32, lane = thread % 32;
    const int key = warp % key_groups * 16 * key_m;
    if (is_visited(key / block_keys, stage)) {
      const int first = warp / key_groups * key_columns / 16;
      add_transposed(dv, p_at, key, lane, dout_at + stage * stage_bytes, first);
      add_transposed(dk, ds_at, key, lane, q_at + stage * stage_bytes, first);
    }
    const int row = warp % dq_groups * 16 * dq_m, column = warp / dq_groups * dq_columns;
    constexpr int lanes = 32 * 4, of_fragment = dq_columns / 8 * lanes;
    const Turn turn = Step::at(stage).turn;
    float* const sums = a.dq_sums + (int64_t{turn.counter} * warps + warp) * (dq_m * of_fragment) + int64_t{lane} * 4;
    Sums<dq_columns / 8> dq[dq_m], others[dq_m];  // the sums of the earlier blocks arrive while these are computed
    ALIBI_UNROLLED
    for (int i = 0; i < dq_m; ++i) {
      dq[i].clear();
      others[i].clear();
      if (turn.number > 0) load_from_others(others[i].at, sums + i * of_fragment);
    }
    const Reader own_ds = rows_of_16<Weights>(ds_at, row, lane), keys_at = rows_of_16<Operand>(k_at, 0, lane);
    static_assert(blocks == 2);
    if (is_visited(0, stage) && is_visited(1, stage)) {  // in one loop, so that loads of both blocks are under way
      add_dq<keys>(dq, own_ds, keys_at, 0, column / 16);
    } else {
      add_dq<block_keys>(dq, own_ds, keys_at, is_visited(0, stage) ? 0 : block_keys / 16, column / 16);
    }
    ALIBI_UNROLLED
    for (int i = 0; i < dq_m; ++i) dq[i].add(others[i]);
    if (turn.number == turn.last) return write_queries(dq, stage, row, column, lane);
    ALIBI_UNROLLED
    for (int i = 0; i < dq_m; ++i) store_for_others(sums + i * of_fragment, dq[i].at);
    to_raise = turn.counter;
  }

  static ALIBI_LANE bool is_visited(int block, uint32_t stage) {
    const Keys visited = Step::at(stage).visited;
    const int key_tile = known().task.tile + block;
    return visited.begin <= key_tile && key_tile < visited.end;
  }

  ALIBI_LANE Turn turn_at(const SequenceRows& sequence, Keys visited, int head, int row) const {
    const int first = (visited.end - 1) / blocks, tiles = (sequence.queries + tile - 1) / tile;
    return {first - known().task.tile / blocks, first - visited.begin / blocks,
            (sequence.tiles_before * a.call.heads + head * tiles) * parts + row / rows};
  }

  ALIBI_LANE void wait_for_turn(uint32_t stage) const {
    if (thread_index() != waits_for_turn) return;
    const Turn turn = Step::at(stage).turn;
    if (turn.number > 0) wait_for_count(a.counters + turn.counter, turn.number);
  }

  ALIBI_LANE void write_queries(const Sums<dq_columns / 8> (&dq)[dq_m], uint32_t stage, int first_row, int first_column,
                                int lane) const {
    const SequenceRows sequence = known().sequence;
    const Step step = Step::at(stage);
    uint16_t* const to = writable_rows_of(a.dq, sequence.batch, int64_t{sequence.query_begin} + step.row, step.head);
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * dq_m; ++r) {
      const int at = first_row + lane / 4 + 8 * r;
      if (step.row + at >= sequence.queries) continue;
      ALIBI_UNROLLED
      for (int j = 0; j < dq_columns / 8; ++j) {
        const int column = first_column + 8 * j + lane % 4 * 2;
        if (column >= a.call.head_dim) continue;
        const float* const values = dq[r / 2].at[j] + r % 2 * 2;
        *reinterpret_cast<uint32_t*>(to + at * a.dq.row_stride + column) =
            pack<type>(values[0] * a.call.scale, values[1] * a.call.scale);
      }
    }
  }

  static ALIBI_LANE RowTerms term(uint32_t stage, int at) {
    return shared_load<RowTerms>(terms_at + stage * terms_bytes + static_cast<uint32_t>(at * sizeof(RowTerms)));
  }

  /// Computes p and ds for the warp's rows and keys, both given by their place in the tiles.
  ALIBI_LANE void make_p_and_ds(int row, int first, uint32_t stage) const {
    const int lane = thread_index_here() % 32, own = row + lane / 4;
    const uint32_t below = static_cast<uint32_t>(first) * Operand::row_bytes;
    Sums<n> p[m], ds[m];
    multiply_rows<type, Operand>(p, rows_of_16<Operand>(q_at + stage * stage_bytes, row, lane),
                                 columns_of_16<Operand>(k_at + below, lane));
    make_weights(own, known().task.tile * block_keys + first, stage, p);
    float start[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) start[r] = -term(stage, own + 8 * r).delta;
    multiply_rows<type, Operand>(ds, rows_of_16<Operand>(dout_at + stage * stage_bytes, row, lane),
                                 columns_of_16<Operand>(v_at + below, lane), start);
    static_assert(8 % n == 0, "the first chunk is a multiple of n, so the address of the next chunks differs by XOR");
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const uint32_t first_to = Weights::address(0, own + 8 * r, first / 8) + static_cast<uint32_t>(lane % 4 * 4);
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        const float* const d = ds[r / 2].at[j] + r % 2 * 2;
        const float* const weight = p[r / 2].at[j] + r % 2 * 2;
        const uint32_t to = first_to ^ static_cast<uint32_t>(j * 16);
        shared_store(p_at + to, pack<type>(weight[0], weight[1]));
        shared_store(ds_at + to, pack<type>(weight[0] * d[0], weight[1] * d[1]));
      }
    }
  }

  /// sums += w' b, for 16 * key_m columns of w from `key` on and for key_columns of b from column 16 * first on. w and
  /// b have `rows` rows.
  static ALIBI_LANE void add_transposed(Sums<key_columns / 8> (&sums)[key_m], uint32_t w, int key, int lane, uint32_t b,
                                        int first) {
    const Reader left_reader = columns_of_16<Weights>(w, lane), right_reader = rows_of_16<Operand>(b, 0, lane);
    ALIBI_UNROLLED
    for (int k = 0; k < rows; k += 16) {
      uint32_t left[key_m][4];
      ALIBI_UNROLLED
      for (int i = 0; i < key_m; ++i) load4_transposed(left[i], left_reader.address<Weights>(k, key / 16 + i));
      ALIBI_UNROLLED
      for (int j = 0; j < key_columns / 8; j += 2) {
        uint32_t right[4];
        load4_transposed(right, right_reader.address<Operand>(k, first + j / 2));
        ALIBI_UNROLLED
        for (int i = 0; i < key_m; ++i) {
          multiply<type>(sums[i].at[j], left[i], right[0], right[1]);
          multiply<type>(sums[i].at[j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }
  /// Adds to sums the products over `count` keys, from key 16 * step on, for dq_columns from column 16 * first on.
  template <int count>
  static ALIBI_LANE void add_dq(Sums<dq_columns / 8> (&sums)[dq_m], Reader ds, Reader k, int step, int first) {
    ALIBI_UNROLLED
    for (const int end = step + count / 16; step < end; ++step) {
      uint32_t left[dq_m][4];
      ALIBI_UNROLLED
      for (int i = 0; i < dq_m; ++i) load4(left[i], ds.address<Weights>(16 * i, step));
      ALIBI_UNROLLED
      for (int j = 0; j < dq_columns / 8; j += 2) {
        uint32_t right[4];
        load4_transposed(right, k.address<Operand>(16 * step, first + j / 2));
        ALIBI_UNROLLED
        for (int i = 0; i < dq_m; ++i) {
          multiply<type>(sums[i].at[j], left[i], right[0], right[1]);
          multiply<type>(sums[i].at[j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }

  /// Replaces the scores of the row `own` and every eighth after it, and of the keys from `key` on, by weights.
  ALIBI_LANE void make_weights(int own, int key, uint32_t stage, Sums<n> (&p)[m]) const {
    const TileRows there = Step::at(stage).there;
    const int own_key = thread_index_here() % 4 * 2, end = key + warp_keys;
    if (there.is_plain(key, end)) {
      float lse2[2 * m];
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) lse2[r] = term(stage, own + 8 * r).lse2;
      make_plain_weights(there, own, key + own_key, there.rise(end), a.call.scale2, lse2, p);
      return;
    }
    const Step step = Step::at(stage);
    const Place place(a.call, known().sequence, step.head);
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const RowSight sight(place, step.row + own + 8 * r);
      const float lse2 = term(stage, own + 8 * r).lse2;
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float& score = p[r / 2].at[j][r % 2 * 2 + e];
          score = sight.biased(place.before, place.after, key + own_key + 8 * j + e, score * a.call.scale2);
          score = power_of_2(score - lse2);
        }
      }
    }
  }
};

template <Type type, int columns>
using BothGradientsOf64Rows = BothGradients<type, columns, 64>;
template <Type type, int columns>
using BothGradientsOf128Rows = BothGradients<type, columns, 128>;

ALIBI_LANES_END
