// The forward pass: a block of threads owns a tile of query rows of one head and visits the key blocks that they see,
// from the diagonal backwards and then forwards, with online softmax (Milakov & Gimelshein 2018; blocked as in
// FlashAttention, Dao et al. 2022). After each key block every row asks the skip rule (skip.h); once all agree, that
// direction ends. Each of the 4 warps has rows of its own, so that what it reads of keys and values serves 16 * m rows.
#pragma once

#include "attention/cuda/place.h"
#include "attention/cuda/skip.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

template <Type type, int columns>
struct Forward {
  using Arguments = ForwardArguments;

  static constexpr int threads = 128;
  static constexpr int rows = tile_rows(columns);
  static constexpr int m = rows / 64;  ///< times 16 rows of a warp
  static constexpr int key_tiles = block_keys / 8;
  /// Of keys and values. With one the next keys are copied during softmax and the product with the values, and the
  /// values during the product with the keys: half of the memory, so that more blocks of threads run at once.
  static constexpr int stages = columns <= 64 ? 2 : 1;
  static constexpr int blocks_at_once = columns <= 32 ? 3 : columns <= 128 ? 2 : 1;

  static constexpr uint32_t stage_bytes = Tile<columns>::bytes(block_keys);
  static constexpr uint32_t q_at = 0;
  static constexpr uint32_t k_at = Tile<columns>::bytes(rows);
  static constexpr uint32_t v_at = k_at + stages * stage_bytes;
  static constexpr uint32_t skip_at = v_at + stages * stage_bytes;
  static constexpr uint32_t sights_at = skip_at + rows * sizeof(SkipRow);
  static constexpr int shared_bytes = static_cast<int>(sights_at + rows * sizeof(RowSight));

  /// By which weights are multiplied for the product with the values: float16 rounds what is below 2^-14 more coarsely.
  static constexpr float weight_unit = type == Type::float16 ? 0x1p8f : 1.0f;

  const Arguments& a;
  const int row;  ///< the tile's first, in the sequence
  const TileRows tile;
  const uint16_t *keys, *values;
  const SkipRule<type, columns, m> skip;
  const int own_row;  ///< in the tile: the lane's first

  Sums<key_tiles> scores[m];
  Sums<columns / 8> out[m];
  float max[2 * m], sum[2 * m];  ///< of each row that the lane has a part of; sum: the lane's own part of it

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = a.tasks[block_index()];
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const Place place(a.call, sequence, task.head);
    const int at = thread_index();
    if (at < rows) {
      shared_store(sights_at + static_cast<uint32_t>(at * sizeof(RowSight)), RowSight(place, task.tile * rows + at));
    }
    Forward(a, task, sequence, place).tile_of_queries(task, sequence, place);
  }

  ALIBI_LANE Forward(const Arguments& arguments, const Task& task, const SequenceRows& sequence, const Place& place)
      : a(arguments),
        row(task.tile * rows),
        tile(place, row, sequence.queries - row < rows ? sequence.queries - row : rows),
        keys(rows_of(a.call.k, sequence.batch, sequence.key_begin, task.head / (a.call.heads / a.call.kv_heads))),
        values(rows_of(a.call.v, sequence.batch, sequence.key_begin, task.head / (a.call.heads / a.call.kv_heads))),
        skip(a, sequence, task.head),
        own_row(thread_index() / 32 * 16 * m + thread_index() % 32 / 4) {}

  ALIBI_LANE void copy_keys(const Rows& tensor, const uint16_t* matrix, uint32_t at, int block) const {
    copy_tile<columns, block_keys, threads>(at, matrix, tensor.row_stride, block * block_keys, tile.last_key + 1,
                                            a.call.head_dim);
  }

  ALIBI_LANE void tile_of_queries(const Task& task, const SequenceRows& sequence, const Place& place) {
    ALIBI_UNROLLED
    for (int i = 0; i < 2 * m; ++i) {
      max[i] = -infinity;
      sum[i] = 0;
    }
    ALIBI_UNROLLED
    for (int i = 0; i < m; ++i) out[i].clear();
    const uint16_t* const queries = rows_of(a.call.q, sequence.batch, sequence.query_begin, task.head);
    copy_tile<columns, rows, threads>(q_at, queries, a.call.q.row_stride, row, sequence.queries, a.call.head_dim);
    const Keys seen = blocks_of(place.seen(row, row + tile.count - 1));
    const int diagonal = static_cast<int>(clamp(tile.position(tile.count - 1) / block_keys, seen.begin, seen.end - 1));
    Keys visited = {diagonal, diagonal};
    bool started = false;
    ALIBI_NOT_UNROLLED
    for (int side = 0; side < 2; ++side) {
      const int step = side == 0 ? -1 : 1, first = side == 0 ? diagonal : diagonal + 1;
      const int count = seen.begin == seen.end ? 0 : side == 0 ? diagonal + 1 - seen.begin : seen.end - first;
      const int done = visit(first, step, count, started);
      if (side == 0) visited = {diagonal + 1 - done, diagonal + (done > 0 ? 1 : 0)};
      if (side == 1) visited.end += done;
    }
    if (seen.begin == seen.end) visited = {seen.begin, seen.begin};
    copies_wait<0>();
    block_sync();  // without keys, the queries land only here
    write(visited);
  }

  /// Visits up to `count` key blocks, `step` apart; gives how many.
  ALIBI_LANE int visit(int block, int step, int count, bool& started) {
    if (count <= 0) return 0;
    block_sync();  // the memory of the other direction's tiles is free
    copy_keys(a.call.k, keys, k_at, block);
    if (stages == 2) copy_keys(a.call.v, values, v_at, block);
    copies_commit();
    uint32_t stage = 0;
    bool over = false;
    ALIBI_NOT_UNROLLED
    for (int i = 0; i < count; ++i, block += step) {
      copies_wait<0>();
      // All has landed, and nobody reads the tiles of the block before any more.
      if (block_all(over)) return i;
      if (stages == 1) {
        copy_keys(a.call.v, values, v_at, block);
      } else if (i + 1 < count) {
        copy_keys(a.call.k, keys, k_at + (stage ^ stage_bytes), block + step);
        copy_keys(a.call.v, values, v_at + (stage ^ stage_bytes), block + step);
      }
      copies_commit();
      if (!started && skip.asked) skip.measure_rows(a, a.tasks[block_index()], q_at, skip_at);
      started = true;
      multiply_rows<type, columns>(scores, rows_of_16<columns>(q_at, thread_index() / 32 * 16 * m),
                                   columns_of_16<columns>(k_at + stage));
      if (stages == 1) {
        copies_wait<0>();
        block_sync();  // the values have landed, and nobody reads the keys any more
        if (i + 1 < count) copy_keys(a.call.k, keys, k_at, block + step);
        copies_commit();
      }
      make_weights(block * block_keys);
      add_product<type, columns>(out, scores, rows_of_16<columns>(v_at + stage, 0));
      if (stages == 2) stage ^= stage_bytes;
      over = step < 0 ? skip.over_before(a, tile, block, max, sum, skip_at)
                      : skip.over_after(a, tile, block + 1, max, sum, skip_at);
    }
    return count;
  }

  /// Scores become weights in units of the running maxima, which rise.
  ALIBI_LANE void make_weights(int key) {
    const int own_key = thread_index() % 4 * 2;
    const int end = key + block_keys;
    const bool plain = tile.is_plain(key, end);
    const float rise = tile.rise(end);
    float base[2 * m];  // of each row's scores
    if (plain) {
      const float first = rise * static_cast<float>(own_key);
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        base[r] = -rise * static_cast<float>(tile.position(own_row + 8 * r) - key);
      }
      ALIBI_UNROLLED
      for (int j = 0; j < key_tiles; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 4; ++e) {
          const float bias = fmaf(rise, static_cast<float>(8 * j + e % 2), first);
          ALIBI_UNROLLED
          for (int i = 0; i < m; ++i) scores[i].at[j][e] = fmaf(scores[i].at[j][e], a.call.scale2, bias);
        }
      }
    } else {
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        base[r] = 0;
        const auto sight =
            shared_load<RowSight>(sights_at + static_cast<uint32_t>((own_row + 8 * r) * sizeof(RowSight)));
        ALIBI_UNROLLED
        for (int j = 0; j < key_tiles; ++j) {
          ALIBI_UNROLLED
          for (int e = 0; e < 2; ++e) {
            float& score = scores[r / 2].at[j][r % 2 * 2 + e];
            score = sight.biased(tile.before, tile.after, key + own_key + 8 * j + e, score * a.call.scale2);
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
      for (int j = 0; j < key_tiles; ++j) {
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
      for (int j = 0; j < key_tiles; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float& score = scores[r / 2].at[j][r % 2 * 2 + e];
          score = power_of_2(score - shift);
          part += score;
          if (type == Type::float16) score *= weight_unit;
        }
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

  ALIBI_LANE void write(Keys visited) {
    const Task task = a.tasks[block_index()];
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const Place where(a.call, sequence, task.head);
    float factors[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const float total = sum_of_row(sum[r]);
      factors[r] = total == 0 ? 0.0f : 1 / (total * weight_unit);
      const int at = own_row + 8 * r;
      if (a.lse == nullptr || thread_index() % 4 != 0 || at >= tile.count) continue;
      constexpr float ln2 = 0.693147180559945309f;
      const float near = (max[r] + log2f(total)) * ln2;
      const int64_t first =
          (int64_t{sequence.batch} * a.call.heads + task.head) * a.call.queries + sequence.query_begin;
      a.near_lse[first + row + at] = near;
      // How far the row is from all keys.
      const int64_t outside = where.offset + row + at - tile.position(at);
      const double slope = static_cast<double>(outside < 0 ? where.after : where.before) * static_cast<double>(ln2);
      const auto distance = static_cast<double>(outside < 0 ? -outside : outside);
      a.lse[first + row + at] = outside == 0 ? near : static_cast<float>(near - slope * distance);
    }
    const int warp_row = thread_index() / 32 * 16 * m;
    write_rows<type, columns>(out, factors, q_at, warp_row,
                              writable_rows_of(a.out, sequence.batch, sequence.query_begin, task.head),
                              a.out.row_stride, row + warp_row, sequence.queries, 0, a.call.head_dim);
    if (a.first_block != nullptr && thread_index() == 0) {
      const int tiles = (sequence.queries + rows - 1) / rows;
      const int64_t entry = int64_t{sequence.tiles_before} * a.call.heads + int64_t{task.head} * tiles + task.tile;
      a.first_block[entry] = visited.begin;
      a.last_block[entry] = visited.end;
    }
  }
};

inline int start_forward(const ForwardArguments& a, int64_t tasks, Type type, void* stream) {
  return launch_for<Forward>(a, tasks, type, stream);
}

ALIBI_LANES_END
