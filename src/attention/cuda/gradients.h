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

/// dq: a block of threads owns a tile of query rows, as in the forward pass.
template <Type type, int columns>
struct QueryGradients {
  using Arguments = BackwardArguments;

  static constexpr int threads = 128;
  static constexpr int rows = tile_rows(columns);
  static constexpr int m = rows / 64;
  static constexpr int step_keys = columns <= 128 ? 32 : 16;  ///< of a block of keys at a time, for registers
  static constexpr int n = step_keys / 8;
  static constexpr int blocks_at_once = columns <= 32 ? 3 : columns <= 128 ? 2 : 1;

  static constexpr uint32_t step_bytes = Tile<columns>::bytes(step_keys);
  static constexpr uint32_t q_at = 0;
  static constexpr uint32_t dout_at = Tile<columns>::bytes(rows);
  static constexpr uint32_t k_at = 2 * dout_at;
  static constexpr uint32_t v_at = k_at + 2 * step_bytes;
  static constexpr uint32_t sights_at = v_at + 2 * step_bytes;
  static constexpr int shared_bytes = static_cast<int>(sights_at + rows * sizeof(RowSight));

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = a.tasks[block_index()];
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const Place place(a.call, sequence, task.head);
    const int row = task.tile * rows, lane = thread_index() % 32, warp_row = thread_index() / 32 * 16 * m;
    const TileRows tile(place, row, sequence.queries - row < rows ? sequence.queries - row : rows);
    if (thread_index() < rows) {
      shared_store(sights_at + static_cast<uint32_t>(thread_index() * sizeof(RowSight)),
                   RowSight(place, row + thread_index()));
    }
    const int kv_head = task.head / (a.call.heads / a.call.kv_heads), size = a.call.head_dim;
    copy_tile<columns, rows, threads>(q_at, rows_of(a.call.q, sequence.batch, sequence.query_begin, task.head),
                                      a.call.q.row_stride, row, sequence.queries, size);
    copy_tile<columns, rows, threads>(dout_at, rows_of(a.dout, sequence.batch, sequence.query_begin, task.head),
                                      a.dout.row_stride, row, sequence.queries, size);
    const uint16_t* const keys = rows_of(a.call.k, sequence.batch, sequence.key_begin, kv_head);
    const uint16_t* const values = rows_of(a.call.v, sequence.batch, sequence.key_begin, kv_head);
    const auto copy_step = [&](int key, uint32_t stage) {
      copy_tile<columns, step_keys, threads>(k_at + stage, keys, a.call.k.row_stride, key, sequence.keys, size);
      copy_tile<columns, step_keys, threads>(v_at + stage, values, a.call.v.row_stride, key, sequence.keys, size);
    };
    const Keys blocks =
        visited_blocks(a, sequence, task.head, task.tile, blocks_of(place.seen(row, row + tile.count - 1)));
    const int end = blocks.end * block_keys < sequence.keys ? blocks.end * block_keys : sequence.keys;
    int key = blocks.begin * block_keys;
    if (key < end) copy_step(key, 0);
    copies_commit();

    const int own_row = warp_row + lane / 4;
    float lse2[2 * m], delta[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const int at = own_row + 8 * r;
      const int64_t first = first_term(a.call, sequence, task.head) + row;
      const RowTerms terms = at < tile.count ? a.terms[first + at] : RowTerms{infinity, 0};
      lse2[r] = terms.lse2;
      delta[r] = terms.delta;
    }
    Sums<columns / 8> dq[m];
    ALIBI_UNROLLED
    for (int i = 0; i < m; ++i) dq[i].clear();
    double slope_sum = 0;
    uint32_t stage = 0;
    ALIBI_NOT_UNROLLED
    for (; key < end; key += step_keys, stage ^= step_bytes) {
      copies_wait<0>();
      block_sync();  // this step's keys have landed, and nobody reads those of the step before any more
      if (key + step_keys < end) copy_step(key + step_keys, stage ^ step_bytes);
      copies_commit();
      Sums<n> p[m], ds[m];
      multiply_rows<type, columns>(p, rows_of_16<columns>(q_at, warp_row), columns_of_16<columns>(k_at + stage));
      make_weights(a, tile, own_row, key, lse2, p);
      multiply_rows<type, columns>(ds, rows_of_16<columns>(dout_at, warp_row), columns_of_16<columns>(v_at + stage));
      ALIBI_UNROLLED
      for (int i = 0; i < m; ++i) {
        ALIBI_UNROLLED
        for (int j = 0; j < n; ++j) {
          ALIBI_UNROLLED
          for (int e = 0; e < 4; ++e) ds[i].at[j][e] = p[i].at[j][e] * (ds[i].at[j][e] - delta[2 * i + e / 2]);
        }
      }
      if (a.slope_sums != nullptr) slope_sum += slope_part(a, tile, own_row, key, ds);
      Packed<n> packed[m];
      pack_rows<type>(packed, ds);
      add_product<type, columns>(dq, packed, rows_of_16<columns>(k_at + stage, 0));
    }
    copies_wait<0>();
    block_sync();  // without keys, the queries land only here
    float factors[2 * m];
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) factors[r] = a.call.scale;
    write_rows<type, columns>(dq, factors, q_at, warp_row,
                              writable_rows_of(a.dq, sequence.batch, sequence.query_begin, task.head), a.dq.row_stride,
                              row + warp_row, sequence.queries, 0, size);
    if (a.slope_sums == nullptr) return;
    block_sync();
    shared_store(static_cast<uint32_t>(thread_index() * sizeof(double)), slope_sum);
    block_sync();
    if (thread_index() != 0) return;
    double sum = 0;
    for (int i = 0; i < threads; ++i) sum += shared_load<double>(static_cast<uint32_t>(i * sizeof(double)));
    const int tiles = (sequence.queries + rows - 1) / rows;
    a.slope_sums[int64_t{sequence.tiles_before} * a.call.heads + int64_t{task.head} * tiles + task.tile] = sum;
  }

  /// Scores become weights.
  static ALIBI_LANE void make_weights(const Arguments& a, const TileRows& tile, int own_row, int key,
                                      const float (&lse2)[2 * m], Sums<n> (&p)[m]) {
    const int own_key = lane_column(), end = key + step_keys;
    const float rise = tile.rise(end);
    if (tile.is_plain(key, end)) {
      const float first = rise * static_cast<float>(own_key);
      ALIBI_UNROLLED
      for (int r = 0; r < 2 * m; ++r) {
        const float base = fmaf(rise, static_cast<float>(tile.position(own_row + 8 * r) - key), lse2[r]);
        ALIBI_UNROLLED
        for (int j = 0; j < n; ++j) {
          ALIBI_UNROLLED
          for (int e = 0; e < 2; ++e) {
            float& score = p[r / 2].at[j][r % 2 * 2 + e];
            const float bias = fmaf(rise, static_cast<float>(8 * j + e), first);
            score = power_of_2(fmaf(score, a.call.scale2, bias) - base);
          }
        }
      }
      return;
    }
    ALIBI_UNROLLED
    for (int r = 0; r < 2 * m; ++r) {
      const auto sight = shared_load<RowSight>(sights_at + static_cast<uint32_t>((own_row + 8 * r) * sizeof(RowSight)));
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float& score = p[r / 2].at[j][r % 2 * 2 + e];
          score = sight.biased(tile.before, tile.after, key + own_key + 8 * j + e, score * a.call.scale2);
          score = power_of_2(score - lse2[r]);
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

/// dk and dv: a block of threads owns a block of keys of a key/value head, each warp 16 of them, and takes query rows
/// in steps, of all heads of the group in turn. Scores are made transposed, so that weights are where the products with
/// dout and q want them. Of 256 columns it makes one half or the other, for registers.
template <Type type, int columns>
struct KeyGradients {
  using Arguments = BackwardArguments;

  static constexpr int threads = 128;
  static constexpr int tile = tile_rows(columns);
  static constexpr int step_rows = columns <= 64 ? 64 : columns <= 128 ? 32 : 16;
  static constexpr int n = step_rows / 8;
  static constexpr int own_columns = columns <= 128 ? columns : columns / 2;
  static constexpr int blocks_at_once = columns <= 32 ? 3 : columns <= 128 ? 2 : 1;

  static constexpr uint32_t step_bytes = Tile<columns>::bytes(step_rows);
  static constexpr uint32_t terms_bytes = step_rows * sizeof(RowTerms);
  static constexpr uint32_t k_at = 0;
  static constexpr uint32_t v_at = Tile<columns>::bytes(block_keys);
  static constexpr uint32_t q_at = 2 * v_at;
  static constexpr uint32_t dout_at = q_at + 2 * step_bytes;
  static constexpr uint32_t terms_at = dout_at + 2 * step_bytes;
  static constexpr int shared_bytes = static_cast<int>(terms_at + 2 * terms_bytes);

  /// The steps of query rows that visited the block of keys, of one head after the other.
  struct Steps {
    const Arguments& a;
    const Task& task;
    const SequenceRows& sequence;
    int head, last_head, step;
    int base, end;   ///< of the head's steps, 32 are looked at together, from `base` on
    uint32_t found;  ///< those of them that are left

    ALIBI_LANE Steps(const Arguments& arguments, const Task& of, const SequenceRows& rows)
        : a(arguments), task(of), sequence(rows), step(0), base(0), end(0), found(0) {
      const int group = a.call.heads / a.call.kv_heads;
      head = of.head * group - 1;
      last_head = head + group;
    }

    /// Goes to the next; false if there is none.
    ALIBI_LANE bool advance() {
      while (found == 0) {
        base += 32;
        if (base >= end) {
          if (++head > last_head) return false;
          start_head();
        }
        const int candidate = base + thread_index() % 32;
        found = warp_votes(candidate < end && visits(candidate));
      }
      step = base + lowest_bit(found);
      found &= found - 1;
      return true;
    }

    /// The steps that may be among the head's, by how far its tiles reach.
    ALIBI_LANE void start_head() {
      constexpr int steps_of_tile = tile / step_rows;
      const Reach reach = a.reach[int64_t{task.sequence} * a.call.heads + head];
      const int of_keys = task.tile * block_keys / tile;
      const int steps = (sequence.queries + step_rows - 1) / step_rows;
      base = (of_keys + reach.first) * steps_of_tile;
      end = (of_keys + reach.last + 1) * steps_of_tile;
      base = base < 0 ? 0 : base;
      end = end > steps ? steps : end;
    }

    ALIBI_LANE bool visits(int candidate) const {
      const Place place(a.call, sequence, head);
      const int first = candidate * step_rows;
      const int last = first + step_rows < sequence.queries ? first + step_rows - 1 : sequence.queries - 1;
      const Keys blocks = visited_blocks(a, sequence, head, first / tile, blocks_of(place.seen(first, last)));
      return blocks.begin <= task.tile && task.tile < blocks.end;
    }
  };

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = a.tasks[block_index()];
    const SequenceRows sequence = a.call.sequences[task.sequence];
    const int key = task.tile * block_keys, size = a.call.head_dim, warp_key = thread_index() / 32 * 16;
    copy_tile<columns, block_keys, threads>(k_at, rows_of(a.call.k, sequence.batch, sequence.key_begin, task.head),
                                            a.call.k.row_stride, key, sequence.keys, size);
    copy_tile<columns, block_keys, threads>(v_at, rows_of(a.call.v, sequence.batch, sequence.key_begin, task.head),
                                            a.call.v.row_stride, key, sequence.keys, size);
    const auto copy_step = [&](int head, int row, uint32_t stage) {
      copy_tile<columns, step_rows, threads>(q_at + stage * step_bytes,
                                             rows_of(a.call.q, sequence.batch, sequence.query_begin, head),
                                             a.call.q.row_stride, row, sequence.queries, size);
      copy_tile<columns, step_rows, threads>(dout_at + stage * step_bytes,
                                             rows_of(a.dout, sequence.batch, sequence.query_begin, head),
                                             a.dout.row_stride, row, sequence.queries, size);
      const int at = thread_index();
      if (at < step_rows) {
        const uint32_t to = terms_at + stage * terms_bytes + static_cast<uint32_t>(at * sizeof(RowTerms));
        if (row + at < sequence.queries) {
          copy8(to, a.terms + first_term(a.call, sequence, head) + row + at, true);
        } else {
          shared_store(to, RowTerms{infinity, 0});  // or weights of rows that are not there could overflow
        }
      }
    };
    Steps steps(a, task, sequence);
    bool more = steps.advance();
    int head = steps.head, row = steps.step * step_rows;
    if (more) copy_step(head, row, 0);
    copies_commit();
    Sums<own_columns / 8> dk[1], dv[1];
    dk[0].clear();
    dv[0].clear();
    uint32_t stage = 0;
    ALIBI_NOT_UNROLLED
    while (more) {
      more = steps.advance();
      const int next_head = steps.head, next_row = steps.step * step_rows;
      copies_wait<0>();
      block_sync();  // this step's rows have landed, and nobody reads those of the step before any more
      if (more) copy_step(next_head, next_row, stage ^ 1);
      copies_commit();
      const uint32_t q = q_at + stage * step_bytes, dout = dout_at + stage * step_bytes;
      const uint32_t terms = terms_at + stage * terms_bytes;
      Sums<n> p[1], ds[1];
      multiply_rows<type, columns>(p, rows_of_16<columns>(k_at, warp_key), columns_of_16<columns>(q));
      make_weights(a, sequence, head, row, key, warp_key, terms, p[0]);
      Packed<n> packed[1];
      pack_rows<type>(packed, p);
      add_product<type, columns>(dv, packed, rows_of_16<columns>(dout, 0), task.part * own_columns / 16);
      multiply_rows<type, columns>(ds, rows_of_16<columns>(v_at, warp_key), columns_of_16<columns>(dout));
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
      add_product<type, columns>(dk, packed, rows_of_16<columns>(q, 0), task.part * own_columns / 16);
      head = next_head;
      row = next_row;
      stage ^= 1;
    }
    copies_wait<0>();
    block_sync();
    const float scales[2] = {a.call.scale, a.call.scale}, ones[2] = {1, 1};
    const int column = task.part * own_columns;
    write_rows<type, columns>(dk, scales, k_at, warp_key,
                              writable_rows_of(a.dk, sequence.batch, sequence.key_begin, task.head), a.dk.row_stride,
                              key + warp_key, sequence.keys, column, size);
    write_rows<type, columns>(dv, ones, v_at, warp_key,
                              writable_rows_of(a.dv, sequence.batch, sequence.key_begin, task.head), a.dv.row_stride,
                              key + warp_key, sequence.keys, column, size);
  }

  static ALIBI_LANE int lane_row(int j, int e) { return thread_index() % 4 * 2 + 8 * j + e; }
  static ALIBI_LANE RowTerms term(uint32_t terms, int j, int e) {
    return shared_load<RowTerms>(terms + static_cast<uint32_t>(lane_row(j, e) * sizeof(RowTerms)));
  }

  /// Transposed scores become weights.
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

/// A block for each slope: adds up its gradients of all tiles, in a fixed order.
struct AddSlopes {
  using Arguments = BackwardArguments;
  static constexpr int threads = 128, blocks_at_once = 8, shared_bytes = threads * sizeof(double);

  static ALIBI_LANE void run(const Arguments& a) {
    const int head = block_index() % a.call.heads, batch = block_index() / a.call.heads;
    double own = 0;
    for (int s = 0; s < a.sequences; ++s) {
      const SequenceRows sequence = a.call.sequences[s];
      if (a.slopes_per_batch != 0 && sequence.batch != batch) continue;
      const int tiles = (sequence.queries + a.call.tile_rows - 1) / a.call.tile_rows;
      const double* const sums = a.slope_sums + int64_t{sequence.tiles_before} * a.call.heads + int64_t{head} * tiles;
      for (int tile = thread_index(); tile < tiles; tile += threads) own += sums[tile];
    }
    shared_store(static_cast<uint32_t>(thread_index() * sizeof(double)), own);
    block_sync();
    if (thread_index() != 0) return;
    double sum = 0;
    for (int i = 0; i < threads; ++i) sum += shared_load<double>(static_cast<uint32_t>(i * sizeof(double)));
    a.dslopes[block_index()] += static_cast<float>(sum);
  }
};

inline int start_row_terms(const BackwardArguments& a, int64_t rows, Type type, void* stream) {
  constexpr int64_t of_block = RowTermsKernel<Type::bfloat16>::rows_of_block;
  return launch_for<RowTermsKernel>(a, (rows + of_block - 1) / of_block, type, stream);
}
inline int start_query_gradients(const BackwardArguments& a, int64_t tasks, Type type, void* stream) {
  return launch_for<QueryGradients>(a, tasks, type, stream);
}
inline int start_key_gradients(const BackwardArguments& a, int64_t tasks, Type type, void* stream) {
  return launch_for<KeyGradients>(a, tasks, type, stream);
}
inline int start_add_slopes(const BackwardArguments& a, int64_t slopes, Type /*type*/, void* stream) {
  return launch<AddSlopes>(slopes, a, stream);
}

ALIBI_LANES_END
