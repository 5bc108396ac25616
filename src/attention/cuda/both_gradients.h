// Computes dq, dk and dv in one kernel, for up to 128 columns (see gradients.h).
#pragma once

#include "attention/cuda/gradients.h"
#include "attention/cuda/steps.h"

ALIBI_LANES_BEGIN

/// A thread block sums dk and dv for 128 keys of a key/value head. It visits 64 query rows at a time, of one head of
/// the group after the other. Weights and ds pass through shared memory, because the five products distribute their
/// operands over the warps in different ways:
///
///   scores, dp   each warp 16 rows and 64 keys
///   dk, dv       each warp 16 keys and all columns
///   dq           each warp 16 rows and half of the columns
///
/// dq of 64 rows is the sum of parts from several thread blocks. They add their parts in float32 one after the other,
/// from the last keys to the first. A counter for the rows determines which block is next. The last block writes dq. So
/// the order, and therefore every bit, is the same in every run. A block takes its task by a ticket, so it only waits
/// for blocks that started earlier. Each block starts with the first rows that see its keys, so causal blocks reach a
/// tile one after the other without waiting.
template <Type type, int columns>
struct BothGradients {
  using Arguments = BackwardArguments;
  using Operand = Tile<columns>;

  static constexpr int threads = 256, warps = threads / 32;
  static constexpr int rows = both_rows, keys = both_keys, blocks = keys / block_keys;
  using Weights = Tile<keys>;
  static constexpr int step_keys = columns <= 64 ? 64 : 32;  ///< processes this many keys at a time, to save registers
  static constexpr int n = step_keys / 8;
  static constexpr int dq_columns = columns / 2;
  static constexpr int tile = tile_rows(columns), parts = tile / rows;  ///< tile size of the forward pass
  static constexpr int blocks_at_once = 1;
  /// Threads with tasks of their own. They are in different warps, so that no warp waits for memory more often than
  /// others.
  static constexpr int describes_step = 0, raises_counter = 32, waits_for_turn = 64;
  static_assert(rows / 16 * blocks == warps && keys / 16 == warps);

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
  static_assert(shared_bytes == both_shared_bytes(columns));

  const Arguments& a;
  Sums<columns / 8> dk[1], dv[1];
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
    dk[0].clear();
    dv[0].clear();
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
    const float scales[2] = {a.call.scale, a.call.scale}, ones[2] = {1, 1};
    write_rows<type, Operand>(dk, scales, k_at, warp * 16,
                              writable_rows_of(a.dk, sequence.batch, sequence.key_begin, task.head), a.dk.row_stride,
                              key + warp * 16, sequence.keys, 0, size);
    write_rows<type, Operand>(dv, ones, v_at, warp * 16,
                              writable_rows_of(a.dv, sequence.batch, sequence.key_begin, task.head), a.dv.row_stride,
                              key + warp * 16, sequence.keys, 0, size);
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

  /// The five products for 64 rows of a head.
  ALIBI_LANE void take_rows(uint32_t stage) {
    make_scores(stage);
    wait_for_turn(stage);
    block_sync();  // now p, ds and the sums of the earlier blocks are complete
    add_products(stage);
  }

  /// Computes p and ds and writes them to shared memory.
  ALIBI_LANE void make_scores(uint32_t stage) const {
    const int warp = thread_index_here() / 32, row_16 = warp % 4 * 16, half = warp / 4;
    if (!is_visited(half, stage)) return;
    ALIBI_UNROLLED
    for (int part = 0; part < block_keys / step_keys; ++part) {
      make_p_and_ds(row_16, half * block_keys + part * step_keys, stage);
    }
  }

  /// The products that use p and ds.
  ALIBI_LANE void add_products(uint32_t stage) {
    const int thread = thread_index_here();
    const int warp = thread / 32, lane = thread % 32, row_16 = warp % 4 * 16, half = warp / 4;
    if (is_visited(half, stage)) {  // the warp's 16 keys lie in the half whose scores it computed
      add_transposed(dv, p_at, warp, lane, dout_at + stage * stage_bytes);
      add_transposed(dk, ds_at, warp, lane, q_at + stage * stage_bytes);
    }
    const Turn turn = Step::at(stage).turn;
    float* const sums =
        a.dq_sums + (int64_t{turn.counter} * warps + warp) * (dq_columns / 8 * 32 * 4) + int64_t{lane} * 4;
    Sums<dq_columns / 8> dq, others;  // the sums of the earlier blocks arrive while this block's are computed
    dq.clear();
    others.clear();
    if (turn.number > 0) load_from_others(others.at, sums);
    ALIBI_UNROLLED
    for (int block = 0; block < blocks; ++block) {
      if (!is_visited(block, stage)) continue;
      add_dq(dq, rows_of_16<Weights>(ds_at, row_16, lane), rows_of_16<Operand>(k_at, 0, lane), block * block_keys / 16,
             half);
    }
    dq.add(others);
    if (turn.number == turn.last) return write_queries(dq, stage, row_16, half, lane);
    store_for_others(sums, dq.at);
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

  ALIBI_LANE void write_queries(const Sums<dq_columns / 8>& dq, uint32_t stage, int row_16, int half, int lane) const {
    const SequenceRows sequence = known().sequence;
    const Step step = Step::at(stage);
    uint16_t* const to = writable_rows_of(a.dq, sequence.batch, int64_t{sequence.query_begin} + step.row, step.head);
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const int at = row_16 + lane / 4 + 8 * r;
      if (step.row + at >= sequence.queries) continue;
      ALIBI_UNROLLED
      for (int j = 0; j < dq_columns / 8; ++j) {
        const int column = half * dq_columns + 8 * j + lane % 4 * 2;
        if (column >= a.call.head_dim) continue;
        *reinterpret_cast<uint32_t*>(to + at * a.dq.row_stride + column) =
            pack<type>(dq.at[j][2 * r] * a.call.scale, dq.at[j][2 * r + 1] * a.call.scale);
      }
    }
  }

  static ALIBI_LANE RowTerms term(uint32_t stage, int at) {
    return shared_load<RowTerms>(terms_at + stage * terms_bytes + static_cast<uint32_t>(at * sizeof(RowTerms)));
  }

  /// Computes p and ds for 16 rows and `step_keys` keys, both given by their place in the tiles.
  ALIBI_LANE void make_p_and_ds(int row_16, int first, uint32_t stage) const {
    const int lane = thread_index_here() % 32, own = row_16 + lane / 4;
    const uint32_t below = static_cast<uint32_t>(first) * Operand::row_bytes;
    Sums<n> p[1], ds[1];
    multiply_rows<type, Operand>(p, rows_of_16<Operand>(q_at + stage * stage_bytes, row_16, lane),
                                 columns_of_16<Operand>(k_at + below, lane));
    make_weights(own, known().task.tile * block_keys + first, stage, p);
    const float start[2] = {-term(stage, own).delta, -term(stage, own + 8).delta};
    multiply_rows<type, Operand>(ds, rows_of_16<Operand>(dout_at + stage * stage_bytes, row_16, lane),
                                 columns_of_16<Operand>(v_at + below, lane), start);
    static_assert(8 % n == 0, "the first chunk is a multiple of n, so the address of the next chunks differs by XOR");
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const uint32_t first_to = Weights::address(0, own + 8 * r, first / 8) + static_cast<uint32_t>(lane % 4 * 4);
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        const float* const d = ds[0].at[j] + 2 * r;
        const float* const weight = p[0].at[j] + 2 * r;
        const uint32_t to = first_to ^ static_cast<uint32_t>(j * 16);
        shared_store(p_at + to, pack<type>(weight[0], weight[1]));
        shared_store(ds_at + to, pack<type>(weight[0] * d[0], weight[1] * d[1]));
      }
    }
  }

  /// sums += w' b. w has 64 x 128 values, of which the warp's 16 columns are used; b has 64 rows.
  static ALIBI_LANE void add_transposed(Sums<columns / 8> (&sums)[1], uint32_t w, int warp, int lane, uint32_t b) {
    const Reader left_reader = columns_of_16<Weights>(w, lane), right_reader = rows_of_16<Operand>(b, 0, lane);
    ALIBI_UNROLLED
    for (int k = 0; k < rows; k += 16) {
      uint32_t left[4];
      load4_transposed(left, left_reader.address<Weights>(k, warp));
      ALIBI_UNROLLED
      for (int j = 0; j < columns / 8; j += 2) {
        uint32_t right[4];
        load4_transposed(right, right_reader.address<Operand>(k, j / 2));
        multiply<type>(sums[0].at[j], left, right[0], right[1]);
        multiply<type>(sums[0].at[j + 1], left, right[2], right[3]);
      }
    }
  }
  /// Adds to sums the products over 64 keys, from key 16 * first on, for half of the columns.
  static ALIBI_LANE void add_dq(Sums<dq_columns / 8>& sums, Reader ds, Reader k, int first, int half) {
    ALIBI_UNROLLED
    for (int step = first; step < first + block_keys / 16; ++step) {
      uint32_t left[4];
      load4(left, ds.address<Weights>(0, step));
      ALIBI_UNROLLED
      for (int j = 0; j < dq_columns / 8; j += 2) {
        uint32_t right[4];
        load4_transposed(right, k.address<Operand>(16 * step, half * dq_columns / 16 + j / 2));
        multiply<type>(sums.at[j], left, right[0], right[1]);
        multiply<type>(sums.at[j + 1], left, right[2], right[3]);
      }
    }
  }

  /// Replaces the scores of the rows `own` and `own` + 8 and of the keys from `key` on by weights.
  ALIBI_LANE void make_weights(int own, int key, uint32_t stage, Sums<n> (&p)[1]) const {
    const TileRows there = Step::at(stage).there;
    const int own_key = thread_index_here() % 4 * 2, end = key + step_keys;
    if (there.is_plain(key, end)) {
      const float lse2[2] = {term(stage, own).lse2, term(stage, own + 8).lse2};
      make_plain_weights(there, own, key + own_key, there.rise(end), a.call.scale2, lse2, p);
      return;
    }
    const Step step = Step::at(stage);
    const Place place(a.call, known().sequence, step.head);
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const RowSight sight(place, step.row + own + 8 * r);
      const float lse2 = term(stage, own + 8 * r).lse2;
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float& score = p[0].at[j][2 * r + e];
          score = sight.biased(place.before, place.after, key + own_key + 8 * j + e, score * a.call.scale2);
          score = power_of_2(score - lse2);
        }
      }
    }
  }
};

ALIBI_LANES_END
