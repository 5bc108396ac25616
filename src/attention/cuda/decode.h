// Cached decoding: a few queries over a long cache. The keys are split over thread blocks. Each thread block has up to
// 16 rows that read the same keys (queries of all heads of a key/value head) and some blocks of keys. Other thread
// blocks merge the partial results in the order of the splits, so no atomics are needed. With the skip rule, an earlier
// kernel (decode_near.h) visits the near keys and decides which other keys a tile needs. Splits that contain none of
// them read nothing.
#pragma once

#include <cstddef>

#include "attention/cuda/gates.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

/// Rows [first, first + count) of a key/value head, numbered query by query over the heads that read it.
struct DecodeTile {
  int batch, kv_head, group, first, count;

  ALIBI_LANE DecodeTile(const DecodeArguments& a, int of_head, int tile)
      : batch(of_head / a.call.kv_heads),
        kv_head(of_head % a.call.kv_heads),
        group(a.call.heads / a.call.kv_heads),
        first(tile * decode_rows) {
    const int left = static_cast<int>(a.call.queries) * group - first;
    count = left < decode_rows ? left : decode_rows;
  }
  ALIBI_LANE int head(int row) const { return kv_head * group + (first + row) % group; }
  ALIBI_LANE int query(int row) const { return (first + row) / group; }
  /// Index of the row in [batch][heads][queries].
  ALIBI_LANE int64_t entry(const DecodeArguments& a, int row) const {
    return (int64_t{batch} * a.call.heads + head(row)) * a.call.queries + query(row);
  }
};

/// A row of the tile, in shared memory.
struct alignas(16) DecodeRow {
  RowSight sight;
  float before, after;  ///< slopes
  PartialRow found;     ///< result over the keys visited so far
};

/// The gates of a row. Nothing without gates.
template <Form form>
struct DecodeGates {
  ALIBI_LANE DecodeGates() {}
  ALIBI_LANE DecodeGates(const Place& /*place*/, int /*query*/) {}
  ALIBI_LANE PairGates<form> pairs(int /*position*/, int /*key*/) const { return PairGates<form>(); }
  ALIBI_LANE float since(int /*key*/) const { return 0; }
};
template <>
struct DecodeGates<Form::gates> {
  TileGates<Form::gates> tile;
  GateRow row;

  ALIBI_LANE DecodeGates() {}
  ALIBI_LANE DecodeGates(const GatedPlace& place, int query) : tile(place, query), row(place, tile, query) {}
  /// For the block of a key.
  ALIBI_LANE PairGates<Form::gates> pairs(int position, int key) const {
    return PairGates<Form::gates>(tile, row, position, key);
  }
  /// The sum over the keys from `key`, the first of an earlier block, up to the row.
  ALIBI_LANE float since(int key) const { return tile.since(key / block_keys) + row.from_tile; }
};

/// Visits some of the keys of a tile. Each warp processes 16 keys at a time with its own sums while it copies the next
/// ones. At the end the sums of the warps are merged.
template <Type type, int columns, Form form>
struct DecodeVisit {
  using Operand = Tile<columns>;
  static constexpr int warps = columns <= 128 ? 4 : 2, threads = 32 * warps;
  static constexpr int slice_keys = 16;
  static constexpr float weight_unit = type == Type::float16 ? 0x1p8f : 1.0f;  // see forward.h

  static constexpr uint32_t slice_bytes = Operand::bytes(slice_keys);
  static constexpr uint32_t warp_bytes = 4 * slice_bytes;  ///< two stages of keys and values
  static constexpr uint32_t q_at = 0;
  static constexpr uint32_t slices_at = Operand::bytes(decode_rows);
  static constexpr uint32_t rows_at = slices_at + warps * warp_bytes;
  static constexpr uint32_t peaks_at = rows_at + decode_rows * sizeof(DecodeRow);
  static constexpr int shared_bytes = static_cast<int>(peaks_at) + warps * decode_rows * sizeof(PartialRow);
  /// Sums of a warp for the other warps: rows of floats, padded to avoid bank conflicts.
  static constexpr int row_floats = columns + 8;
  static_assert(row_floats * decode_rows * sizeof(float) <= warp_bytes);

  const DecodeArguments& a;
  const DecodeTile tile;
  const uint16_t *keys, *values;
  int key_count;
  Sums<slice_keys / 8> scores[1];
  Sums<columns / 8> out[1];
  float max[2], sum[2];  ///< for the lane's two rows; sum is the lane's own part
  RowSight sight[2];
  float before[2], after[2];
  DecodeGates<form> gates[2];

  /// Writes rows and queries to shared memory.
  ALIBI_LANE DecodeVisit(const DecodeArguments& arguments, const DecodeTile& rows) : a(arguments), tile(rows) {
    const SequenceRows sequence = a.call.sequences[tile.batch];
    const int at = thread_index(), lane = at % 32;
    key_count = sequence.keys;
    keys = rows_of(a.call.k, tile.batch, 0, tile.kv_head);
    values = rows_of(a.call.v, tile.batch, 0, tile.kv_head);
    if (at < decode_rows) {
      const int row = at < tile.count ? at : 0;
      const PlaceOf<form> place(a.call, sequence, tile.head(row));
      DecodeRow known = {RowSight(place, tile.query(row)), place.before, place.after, {-infinity, 0}};
      if (at >= tile.count) known.sight.seen = {0, 0};
      shared_store(row_at(at), known);
    }
    constexpr int chunks = Operand::chunks;
    for (int i = at; i < decode_rows * chunks; i += threads) {
      const int row = i / chunks, chunk = i % chunks;
      const bool real = row < tile.count && chunk * 8 < a.call.head_dim;
      const uint16_t* const from =
          real ? rows_of(a.call.q, tile.batch, tile.query(row), tile.head(row)) + chunk * 8 : a.call.q.data;
      copy16(Operand::address(q_at, row, chunk), from, real);
    }
    copies_commit();
    copies_wait<0>();
    block_sync();
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const int own = lane / 4 + 8 * r;
      const auto row = shared_load<DecodeRow>(row_at(own));
      gates[r] = gates_of(a, tile, own < tile.count ? own : 0);
      sight[r] = row.sight;
      before[r] = row.before;
      after[r] = row.after;
      max[r] = -infinity;
      sum[r] = 0;
    }
    out[0].clear();
  }

  static ALIBI_LANE DecodeGates<form> gates_of(const DecodeArguments& a, const DecodeTile& tile, int row) {
    return DecodeGates<form>(PlaceOf<form>(a.call, a.call.sequences[tile.batch], tile.head(row)), tile.query(row));
  }
  static ALIBI_LANE uint32_t row_at(int row) { return rows_at + static_cast<uint32_t>(row * sizeof(DecodeRow)); }

  /// The keys that at least one of the rows sees.
  ALIBI_LANE Keys seen() const {
    Keys all = {key_count, 0};
    for (int i = 0; i < tile.count; ++i) {
      const Keys own = shared_load<DecodeRow>(row_at(i)).sight.seen;
      if (own.begin >= own.end) continue;
      all.begin = own.begin < all.begin ? own.begin : all.begin;
      all.end = own.end > all.end ? own.end : all.end;
    }
    return {all.begin < all.end ? all.begin : all.end, all.end};
  }

  /// Visits blocks of keys.
  ALIBI_LANE void visit(Keys blocks) {
    const int end = blocks.end * block_keys < key_count ? blocks.end * block_keys : key_count;
    const uint32_t own = slices_at + static_cast<uint32_t>(thread_index() / 32) * warp_bytes;
    int key = blocks.begin * block_keys + thread_index() / 32 * slice_keys;
    uint32_t stage = own;
    if (key < end) copy_slice(stage, key);
    copies_commit();
    ALIBI_NOT_UNROLLED
    for (; key < end; key += warps * slice_keys) {
      const uint32_t next = own + (2 * slice_bytes - (stage - own));
      if (key + warps * slice_keys < end) copy_slice(next, key + warps * slice_keys);
      copies_commit();
      copies_wait<1>();
      warp_sync();  // now the slice has arrived for all lanes
      multiply_rows<type, Operand>(scores, rows_of_16<Operand>(q_at, 0), columns_of_16<Operand>(stage));
      Fragment<slice_keys / 8> weights[1];
      make_weights(key, weights);
      add_product<type, Operand>(out, weights, rows_of_16<Operand>(stage + slice_bytes, 0));
      warp_sync();  // now all lanes have read it
      stage = next;
    }
  }

  /// Merges the results of the warps and writes them to the rows' slot and to shared memory.
  ALIBI_LANE void finish(int slot) {
    const int at = thread_index(), lane = at % 32, warp = at / 32;
    const uint32_t own = slices_at + static_cast<uint32_t>(warp) * warp_bytes;
    copies_wait<0>();
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
      const PartialRow found = {max[r], sum_of_lanes(sum[r])};
      if (lane % 4 == 0) shared_store(peak_at(warp, row), found);
      ALIBI_UNROLLED
      for (int j = 0; j < columns / 8; ++j) {
        const uint32_t to = own + static_cast<uint32_t>((row * row_floats + 8 * j + lane % 4 * 2) * 4);
        shared_store(to, out[0].at[j][2 * r]);
        shared_store(to + 4, out[0].at[j][2 * r + 1]);
      }
    }
    block_sync();
    for (int i = at; i < decode_rows * columns; i += threads) {
      const int row = i / columns, column = i % columns;
      if (row >= tile.count || column >= a.call.head_dim) continue;
      PartialRow all = {-infinity, 0};
      ALIBI_UNROLLED
      for (int w = 0; w < warps; ++w) all.max = fmaxf(all.max, shared_load<PartialRow>(peak_at(w, row)).max);
      float value = 0;
      ALIBI_UNROLLED
      for (int w = 0; w < warps; ++w) {
        const auto peak = shared_load<PartialRow>(peak_at(w, row));
        const float factor = peak.max == all.max ? 1.0f : power_of_2(peak.max - all.max);
        const uint32_t from = slices_at + static_cast<uint32_t>(w) * warp_bytes;
        value = fmaf(factor, shared_load<float>(from + static_cast<uint32_t>((row * row_floats + column) * 4)), value);
        all.sum = fmaf(factor, peak.sum, all.sum);
      }
      const int64_t entry = tile.entry(a, row) * a.slots + slot;
      a.partial_out[entry * a.call.head_dim + column] = value * (1 / weight_unit);
      if (column > 0) continue;
      a.partials[entry] = all;
      shared_store(row_at(row) + static_cast<uint32_t>(offsetof(DecodeRow, found)), all);
    }
  }

  /// Fills the slot of rows that visit no keys. Their partial outputs are never read.
  static ALIBI_LANE void write_nothing(const DecodeArguments& a, const DecodeTile& tile, int slot) {
    const int row = thread_index();
    if (row < tile.count) a.partials[tile.entry(a, row) * a.slots + slot] = {-infinity, 0};
  }

 private:
  static ALIBI_LANE uint32_t peak_at(int warp, int row) {
    return peaks_at + static_cast<uint32_t>((warp * decode_rows + row) * sizeof(PartialRow));
  }
  static ALIBI_LANE float sum_of_lanes(float part) {
    part += lane_xor(part, 1);
    return part + lane_xor(part, 2);
  }

  /// Each warp copies its own slice.
  ALIBI_LANE void copy_slice(uint32_t stage, int key) const {
    const int lane = thread_index() % 32;
    copy_tile<Operand, slice_keys, 32>(stage, keys, a.call.k.row_stride, key, key_count, a.call.head_dim, lane);
    copy_tile<Operand, slice_keys, 32>(stage + slice_bytes, values, a.call.v.row_stride, key, key_count,
                                       a.call.head_dim, lane);
  }

  /// Updates the running maxima and replaces scores by weights relative to them.
  ALIBI_LANE void make_weights(int key, Fragment<slice_keys / 8> (&weights)[1]) {
    const int own_key = key + thread_index() % 4 * 2;
    float factor[2];
    bool raised = false;
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      float top = -infinity;
      const PairGates<form> pairs = gates[r].pairs(sight[r].position, key);
      ALIBI_UNROLLED
      for (int j = 0; j < slice_keys / 8; ++j) {
        ALIBI_UNROLLED
        for (int e = 0; e < 2; ++e) {
          float& score = scores[0].at[j][2 * r + e];
          const int at = own_key + 8 * j + e;
          score = pairs.add(sight[r].biased(before[r], after[r], at, score * a.call.scale2), at);
          top = fmaxf(top, score);
        }
      }
      top = fmaxf(top, lane_xor(top, 1));
      top = fmaxf(top, lane_xor(top, 2));
      const float risen = fmaxf(max[r], top), shift = risen == -infinity ? 0.0f : risen;
      factor[r] = risen == max[r] ? 1.0f : power_of_2(max[r] - risen);
      raised = raised || risen != max[r];
      max[r] = risen;
      float part = 0;
      ALIBI_UNROLLED
      for (int j = 0; j < slice_keys / 8; ++j) {
        const float low = power_of_2(scores[0].at[j][2 * r] - shift);
        const float high = power_of_2(scores[0].at[j][2 * r + 1] - shift);
        part += low + high;
        weights[0].at[j][r] = pack<type>(low * weight_unit, high * weight_unit);
      }
      sum[r] = fmaf(sum[r], factor[r], part);
    }
    if (warp_votes(raised) == 0) return;
    ALIBI_UNROLLED
    for (int j = 0; j < columns / 8; ++j) {
      ALIBI_UNROLLED
      for (int e = 0; e < 4; ++e) out[0].at[j][e] *= factor[e / 2];
    }
  }
};

/// One thread block for each tile of each split. Tiles that read the same keys of a key/value head have neighbouring
/// indices, so that they read the keys at the same time.
template <Type type, int columns, Form form>
struct DecodeSplits {
  using Arguments = DecodeArguments;
  using Visit = DecodeVisit<type, columns, form>;
  static constexpr int threads = Visit::threads, shared_bytes = Visit::shared_bytes;
  static constexpr int blocks_at_once = columns <= 64 ? 4 : 2;

  static ALIBI_LANE Keys overlap(Keys a, Keys b) {
    const int begin = a.begin > b.begin ? a.begin : b.begin, end = a.end < b.end ? a.end : b.end;
    return {begin, end > begin ? end : begin};
  }

  static ALIBI_LANE void run(const Arguments& a) {
    const int tile_index = block_index() % a.tiles, split = block_index() / a.tiles % a.splits;
    const int of_head = block_index() / a.tiles / a.splits;
    const DecodeTile tile(a, of_head, tile_index);
    const Keys own = {split * a.blocks_of_split, (split + 1) * a.blocks_of_split};
    const int slot = split + (a.limits != nullptr ? 1 : 0);
    Keys first = own, second = {0, 0};  // the keys on both sides of the near keys
    if (a.limits != nullptr) {
      const DecodeLimits limits = a.limits[of_head * a.tiles + tile_index];
      first = overlap(own, {limits.begin, limits.near_begin});
      second = overlap(own, {limits.near_end, limits.end});
      if (first.begin == first.end && second.begin == second.end) return Visit::write_nothing(a, tile, slot);
    }
    Visit visit(a, tile);
    if (a.limits == nullptr) {
      first = overlap(own, blocks_of(visit.seen()));
      if (first.begin == first.end) return Visit::write_nothing(a, tile, slot);
    }
    visit.visit(first);
    if (second.begin < second.end) visit.visit(second);
    visit.finish(slot);
  }
};

/// One thread block for each row: out = sum over slots of 2^(max_s - max) out_s / sum over slots of 2^(max_s - max)
/// sum_s. A sink is one more term of the denominator.
template <Type type>
struct DecodeMerge {
  using Arguments = DecodeArguments;
  static constexpr int threads = 128, blocks_at_once = 8;
  static constexpr int max_slots = 1 + 256;  ///< maximum number of slots that the passes use
  static constexpr float unvisited = -1;
  static constexpr int shared_bytes = (max_slots + 3) / 4 * 16;

  static ALIBI_LANE void run(const Arguments& a) {
    const int64_t entry = block_index();
    const PartialRow* const parts = a.partials + entry * a.slots;
    const float* const outs = a.partial_out + entry * a.slots * a.call.head_dim;
    const int lane = thread_index() % 32;
    const auto query = static_cast<int>(entry % a.call.queries);
    const auto head = static_cast<int>(entry / a.call.queries % a.call.heads);
    const auto batch = static_cast<int>(entry / a.call.queries / a.call.heads);
    const Place place(a.call, a.call.sequences[batch], head);
    const float sink = sink_of(a.call, place, head, query);
    float max = sink, sum = 0;  // every warp computes the same values
    for (int s = lane; s < a.slots; s += 32) max = fmaxf(max, parts[s].max);
    for (int bits = 1; bits < 32; bits *= 2) max = fmaxf(max, lane_xor(max, bits));
    for (int s = lane; s < a.slots; s += 32) {
      const PartialRow part = parts[s];
      // A visited slot counts even if its weight is zero, so that NaN remains NaN. If the slot has no maximum, its
      // weight is its sum.
      const float weight = part.sum == 0 ? unvisited : part.max == -infinity ? 1.0f : power_of_2(part.max - max);
      if (part.sum != 0) sum = fmaf(weight, part.sum, sum);
      if (thread_index() < 32) shared_store(static_cast<uint32_t>(s * 4), weight);
    }
    for (int bits = 1; bits < 32; bits *= 2) sum += lane_xor(sum, bits);
    if (sink > -infinity) sum += power_of_2(sink - max);
    block_sync();
    const int column = thread_index() * 2;
    if (column < a.call.head_dim) {
      float low = 0, high = 0;
      for (int s = 0; s < a.slots; ++s) {
        const float weight = shared_load<float>(static_cast<uint32_t>(s * 4));
        if (weight == unvisited) continue;
        low = fmaf(weight, outs[int64_t{s} * a.call.head_dim + column], low);
        high = fmaf(weight, outs[int64_t{s} * a.call.head_dim + column + 1], high);
      }
      const float share = sum == 0 ? 0.0f : 1 / sum;
      *reinterpret_cast<uint32_t*>(writable_rows_of(a.out, batch, query, head) + column) =
          pack<type>(low * share, high * share);
    }
    if (a.lse == nullptr || thread_index() != 0) return;
    write_lse(place, query, max, sum, a.lse_from_nearest + entry, a.lse + entry);
  }
};

ALIBI_LANES_END
