// The forward pass. A thread block has a tile of query rows of one head and visits the key blocks that they see, first
// from the diagonal backwards and then forwards, with online softmax (Milakov & Gimelshein 2018; blocked as in
// FlashAttention, Dao et al. 2022). After each key block the skip rule (skip.h) is applied to every row. A direction
// ends when no row needs more keys. Each of the 4 warps has its own rows, so that each key and value that it reads is
// used for 16 * m rows.
#pragma once

#include <type_traits>

#include "attention/cuda/gates.h"
#include "attention/cuda/order.h"
#include "attention/cuda/skip.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

template <Type type, int columns, Form form>
struct Forward {
  using Arguments = ForwardArguments;
  using Operand = std::conditional_t<columns <= 128, SpacedTile<columns>, Tile<columns>>;

  static constexpr int threads = 128;
  static constexpr int rows = tile_rows(columns);
  static constexpr int m = rows / 64;  ///< each warp has 16 * m rows
  static constexpr int n = block_keys / 8;
  /// Whether there is memory for the keys and values of two blocks. Then those of the next block arrive during a whole
  /// block. Otherwise values arrive while scores are computed, and the next keys while weights and out are.
  static constexpr bool two_stages = columns <= 64;
  using Rule = SkipRule<type, Operand, m, form>;
  static constexpr int blocks_at_once = columns <= 128 ? 2 : 1;

  static constexpr uint32_t stage_bytes = Operand::bytes(block_keys), stages = two_stages ? 2 : 1;
  static constexpr uint32_t q_at = 0;
  static constexpr uint32_t k_at = Operand::bytes(rows);
  static constexpr uint32_t v_at = k_at + stages * stage_bytes;
  static constexpr uint32_t skip_at = v_at + stages * stage_bytes;
  static constexpr uint32_t sights_at = skip_at + rows * sizeof(SkipRow);
  static constexpr uint32_t known_at = sights_at + rows * sizeof(Keys);
  /// With gates: those of the rows, and for the keys of each stage GateBlock::to_end and the sum before the next block.
  static constexpr uint32_t gate_rows_at = known_at + 128;
  static constexpr uint32_t gate_stage_bytes = block_keys * sizeof(float) + sizeof(GateSum);
  static constexpr uint32_t gates_at = gate_rows_at + rows * sizeof(GateRow);
  static constexpr int shared_bytes =
      static_cast<int>(form == Form::gates ? gates_at + stages * gate_stage_bytes : gate_rows_at);
  static_assert(shared_bytes <= 99 << 10);                                 // what a thread block of any GPU can have
  static_assert(columns > 128 || 2 * (shared_bytes + 1024) <= 164 << 10);  // an SM of A100; each block reserves 1 KB

  /// Factor of the weights in the product with the values, because float16 has less precision below 2^-14.
  static constexpr float weight_unit = type == Type::float16 ? 0x1p8f : 1.0f;

  /// Data of the tile that all threads share. It is in shared memory and read where it is needed, to save registers.
  struct Known : TileGates<form> {
    TileRows tile;
    Task task;
    Keys seen;     ///< in blocks
    int diagonal;  ///< the block that contains the last row's position
    int row;       ///< first row of the tile, counted within the sequence
    int64_t bounds;
    const uint16_t *keys, *values;
  };
  static_assert(sizeof(Known) <= 128);

  const Arguments& a;
  Sums<n> scores[m];
  Sums<columns / 8> out[m];
  float max[2 * m], sum[2 * m];  ///< for each row that the lane has a part of; sum is the lane's own part

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = query_task(a.call, block_index());
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const PlaceOf<form> place(a.call, sequence, task.head);
    const int row = task.tile * rows, count = sequence.queries - row < rows ? sequence.queries - row : rows;
    const int at = thread_index();
    const TileGates<form> gates(place, row);
    if constexpr (form == Form::gates) {
      if (at < rows) shared_store(gate_row_at(at), GateRow(place, gates, row + at));
    }
    if (at < rows) shared_store(sights_at + static_cast<uint32_t>(at * sizeof(Keys)), place.seen(row + at, row + at));
    if (at == 0) {
      const int kv_head = task.head / (a.call.heads / a.call.kv_heads);
      const TileRows tile(place, row, count);
      const Keys seen = blocks_of(place.seen(row, row + count - 1));
      const int64_t diagonal = clamp(tile.position(count - 1) / block_keys, seen.begin, seen.end - 1);
      shared_store(known_at, Known{gates, tile, task, seen, static_cast<int>(diagonal), row,
                                   first_entry(a.call, sequence, task.head),
                                   rows_of(a.call.k, sequence.batch, sequence.key_begin, kv_head),
                                   rows_of(a.call.v, sequence.batch, sequence.key_begin, kv_head)});
    }
    copy_tile<Operand, rows, threads>(q_at, rows_of(a.call.q, sequence.batch, sequence.query_begin, task.head),
                                      a.call.q.row_stride, row, sequence.queries, a.call.head_dim);
    copies_commit();
    block_sync();
    Forward(a).visit_all();
  }

  ALIBI_LANE explicit Forward(const Arguments& arguments) : a(arguments) {}

  static ALIBI_LANE uint32_t gate_row_at(int row) {
    return gate_rows_at + static_cast<uint32_t>(row * sizeof(GateRow));
  }
  static ALIBI_LANE Known known() { return shared_load<Known>(known_at); }
  /// The lane's first row within the tile.
  static ALIBI_LANE int own_row(int thread = thread_index()) { return thread / 32 * 16 * m + thread % 32 / 4; }

  ALIBI_LANE void copy_keys(int block, uint32_t stage) const {
    copy_tile<Operand, block_keys, threads>(k_at + stage, known().keys, a.call.k.row_stride, block * block_keys,
                                            known().tile.last_key + 1, a.call.head_dim);
  }
  ALIBI_LANE void copy_values(int block, uint32_t stage) const {
    copy_tile<Operand, block_keys, threads>(v_at + stage, known().values, a.call.v.row_stride, block * block_keys,
                                            known().tile.last_key + 1, a.call.head_dim);
    if constexpr (form == Form::gates) copy_gates(block, stage);
  }
  /// The gates of a stage of keys.
  static ALIBI_LANE uint32_t gates_of(uint32_t stage) { return gates_at + stage / stage_bytes * gate_stage_bytes; }
  ALIBI_LANE void copy_gates(int block, uint32_t stage) const {
    constexpr int chunks = block_keys * sizeof(float) / sizeof(Chunk);
    const int thread = thread_index();
    const GateBlock* const blocks = known().blocks + block;
    const uint32_t to = gates_of(stage) + static_cast<uint32_t>(thread * sizeof(Chunk));
    if (thread < chunks) copy16(to, blocks->to_end + thread * 4, true);
    if (thread == chunks) copy16(to, &blocks[1].before, true);
  }
  /// Starts the copies for a block that is visited later.
  ALIBI_LANE void copy_ahead(int block, uint32_t stage) const {
    copy_keys(block, stage);
    if (two_stages) copy_values(block, stage);
  }

  ALIBI_LANE void visit_all() {
    if (known().seen.begin < known().seen.end) copy_ahead(known().diagonal, 0);
    copies_commit();
    if (a.budget > 0) {
      copies_wait<1>();
      block_sync();  // now the queries have arrived
      Rule::measure_rows(a, known().task, q_at, skip_at);
    }
    ALIBI_UNROLLED
    for (int i = 0; i < 2 * m; ++i) {
      max[i] = -infinity;
      sum[i] = 0;
    }
    if (a.call.sinks != nullptr) visit_sink();
    ALIBI_UNROLLED
    for (int i = 0; i < m; ++i) out[i].clear();
    Keys visited = {known().seen.begin, known().seen.begin};
    ALIBI_NOT_UNROLLED
    for (int towards = -1; towards <= 1; towards += 2) {
      const Keys seen = known().seen;
      const int first = known().diagonal + (towards < 0 ? 0 : 1), end = towards < 0 ? seen.begin - 1 : seen.end;
      if (seen.begin == seen.end || first == end) continue;
      const int last = visit(first, towards, end);
      if (towards < 0) visited = {last, first + 1};
      if (towards > 0) visited.end = last + 1;
    }
    copies_wait<0>();
    block_sync();  // without key blocks, the queries arrive only here
    write(visited);
  }

  /// A sink counts as a key that is visited first, whose value is zero.
  ALIBI_LANE void visit_sink() {
    const Task task = known().task;
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const Place place(a.call, sequence, task.head);
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      max[r] = sink_of(a.call, place, task.head, known().row + own_row() + 8 * r);
      if (thread_index() % 4 == 0 && max[r] > -infinity) sum[r] = 1;
    }
  }

  /// Visits key blocks towards `end` (exclusive) until the remaining ones are negligible. Returns the last visited one.
  ALIBI_LANE int visit(int first, int towards, int end) {
    const int last = end - towards;
    if (towards > 0) {  // visit_all() started copies for the other direction only
      block_sync();     // now no thread still reads the other direction's blocks
      copy_ahead(first, 0);
      copies_commit();
    }
    uint32_t stage = 0;
    bool over = false;
    ALIBI_NOT_UNROLLED
    for (int block = first;; block += towards, stage ^= two_stages ? stage_bytes : 0) {
      copies_wait<0>();
      // Now what was copied ahead has arrived, and no thread still reads the previous block's values.
      if (block_all(over)) return block - towards;
      if (!two_stages) {
        copy_values(block, stage);
      } else if (block != last) {
        copy_ahead(block + towards, stage ^ stage_bytes);
      }
      copies_commit();
      const int thread = thread_index_here(), lane = thread % 32;
      multiply_rows<type, Operand>(scores, rows_of_16<Operand>(q_at, thread / 32 * 16 * m, lane),
                                   columns_of_16<Operand>(k_at + stage, lane));
      if (!two_stages) {
        copies_wait<0>();
        block_sync();  // now the block's values have arrived, and no thread still reads its keys
        if (block != last) copy_ahead(block + towards, stage);
        copies_commit();
      }
      Fragment<n> weights[m];
      make_weights(block * block_keys, gates_of(stage), weights);
      if (a.budget > 0 && block != last) {
        over = Rule::over(a, known().tile, known(), known().bounds, block, towards, max, sum, skip_at, gate_rows_at);
      }
      add_product<type, Operand>(out, weights, rows_of_16<Operand>(v_at + stage, 0));
      if (block == last) return block;
    }
  }

  /// Updates the running maxima and replaces scores by weights relative to them. `gates` are those of the keys.
  ALIBI_LANE void make_weights(int key, uint32_t gates, Fragment<n> (&weights)[m]) {
    const TileRows tile = known().tile;
    const int thread = thread_index_here(), own_key = thread % 4 * 2, own_row = Forward::own_row(thread);
    const int end = key + block_keys;
    const bool plain = tile.template is_plain<form>(key, end);
    const float rise = tile.rise(end);
    float base[2 * m];  // for each row's scores
    if (plain) {
      const float first = rise * static_cast<float>(own_key);
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        base[r] = -rise * static_cast<float>(tile.position(own_row + 8 * r) - key);
      }
      if constexpr (form == Form::gates) {
        const float between = known().since(shared_load<GateSum>(gates + block_keys * sizeof(float)));
        ALIBI_UNROLLED
        for (int r = 0; r < 2 * m; ++r)
          base[r] += between + shared_load<GateRow>(gate_row_at(own_row + 8 * r)).from_tile;
      }
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 4; ++e) {
          float bias = fmaf(rise, static_cast<float>(8 * j + e % 2), first);
          if constexpr (form == Form::gates) {
            bias += shared_load<float>(gates + static_cast<uint32_t>((own_key + 8 * j + e % 2) * sizeof(float)));
          }
          ALIBI_UNROLLED
          for (int i = 0; i < m; ++i) scores[i].at[j][e] = fmaf(scores[i].at[j][e], a.call.scale2, bias);
        }
      }
    } else {
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        base[r] = 0;
        const RowSight sight(shared_load<Keys>(sights_at + static_cast<uint32_t>((own_row + 8 * r) * sizeof(Keys))),
                             tile.position(own_row + 8 * r));
        const PairGates<form> pairs = pair_gates(own_row + 8 * r, sight.position, key);
        ALIBI_UNROLLED
        for (int j = 0; j < n; ++j) {
          ALIBI_UNROLLED
          for (int e = 0; e < 2; ++e) {
            float& score = scores[r / 2].at[j][r % 2 * 2 + e];
            score = pairs.add(score * a.call.scale2, own_key + 8 * j + e);
            score = sight.biased(tile.before, tile.after, key + own_key + 8 * j + e, score);
          }
        }
      }
    }
    float factor[2 * m];
    bool raised = false;
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      float top = -infinity;
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        top = fmaxf(top, fmaxf(scores[r / 2].at[j][r % 2 * 2], scores[r / 2].at[j][r % 2 * 2 + 1]));
      }
      top = fmaxf(top, lane_xor(top, 1));
      top = fmaxf(top, lane_xor(top, 2));
      const float risen = fmaxf(max[r], top + base[r]);
      const float shift = risen == -infinity ? 0.0f : risen - base[r];
      factor[r] = risen == max[r] ? 1.0f : power_of_2(max[r] - risen);
      raised = raised || risen != max[r];
      max[r] = risen;
      float part = 0;
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        const float low = power_of_2(scores[r / 2].at[j][r % 2 * 2] - shift);
        const float high = power_of_2(scores[r / 2].at[j][r % 2 * 2 + 1] - shift);
        part += low + high;
        weights[r / 2].at[j][r % 2] =
            type == Type::float16 ? pack<type>(low * weight_unit, high * weight_unit) : pack<type>(low, high);
      }
      sum[r] = fmaf(sum[r], factor[r], part);
    }
    if (warp_votes(raised) == 0) return;
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      ALIBI_UNROLLED
      for (int j = 0; j < columns / 8; ++j) {
        out[r / 2].at[j][r % 2 * 2] *= factor[r];
        out[r / 2].at[j][r % 2 * 2 + 1] *= factor[r];
      }
    }
  }

  static ALIBI_LANE PairGates<form> pair_gates(int row, int position, int key) {
    if constexpr (form == Form::gates) {
      return PairGates<form>(known(), shared_load<GateRow>(gate_row_at(row)), position, key);
    } else {
      return PairGates<form>(row, position, key);
    }
  }

  ALIBI_LANE void write(Keys visited) {
    const Task task = known().task;
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const int row = task.tile * rows, warp_row = thread_index() / 32 * 16 * m;
    float factors[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      sum[r] = sum_of_row(sum[r]);
      factors[r] = sum[r] == 0 ? 0.0f : 1 / (sum[r] * weight_unit);
    }
    write_rows<type, Operand>(out, factors, q_at, warp_row,
                              writable_rows_of(a.out, sequence.batch, sequence.query_begin, task.head),
                              a.out.row_stride, row + warp_row, sequence.queries, 0, a.call.head_dim);
    const int64_t entry = (int64_t{sequence.batch} * a.call.heads + task.head) * a.call.queries + sequence.query_begin;
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const int at = row + own_row() + 8 * r;
      if (a.lse == nullptr || thread_index() % 4 != 0 || at >= sequence.queries) continue;
      write_lse(Place(a.call, sequence, task.head), at, max[r], sum[r], a.lse_from_nearest + entry + at,
                a.lse + entry + at);
    }
    if (a.first_block != nullptr && thread_index() == 0) {
      const int tiles = (sequence.queries + rows - 1) / rows;
      const int64_t number = int64_t{sequence.tiles_before} * a.call.heads + int64_t{task.head} * tiles + task.tile;
      a.first_block[number] = visited.begin;
      a.last_block[number] = visited.end;
      if (a.seen != nullptr) a.seen[number] = known().seen.end - known().seen.begin;
    }
  }
};

ALIBI_LANES_END
