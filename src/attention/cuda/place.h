// Positions of the rows of a tile, the keys that they see, and the origin of their distances.
#pragma once

#include "attention/cuda/lane.h"

ALIBI_LANES_BEGIN

constexpr float infinity = __builtin_huge_valf();
constexpr float log2_of_e = 1.44269504088896340736f;

ALIBI_LANE int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/// Key rows, or blocks of them, [begin, end).
struct Keys {
  int begin, end;
};

ALIBI_LANE Keys blocks_of(Keys rows) {
  const int first = rows.begin / block_keys;
  return {first, rows.begin < rows.end ? (rows.end + block_keys - 1) / block_keys : first};
}

/// Index of a head's first entry in arrays with an entry for each block of keys of each head, and one more for each
/// head.
ALIBI_LANE int64_t first_entry(const Call& call, const SequenceRows& sequence, int head) {
  const int blocks = (sequence.keys + block_keys - 1) / block_keys;
  return int64_t{sequence.bounds_before} * call.heads + int64_t{head} * (blocks + 1);
}

/// A head of a sequence.
struct Place {
  int64_t offset;       ///< position of the sequence's first query
  int64_t least, most;  ///< range of distances that are seen: position of the query - position of the key
  int keys;
  float before, after;  ///< slopes times log2(e)

  ALIBI_LANE Place(const Call& call, const SequenceRows& sequence, int head) {
    const Slopes slopes = call.slopes[sequence.batch * call.slopes_stride + head];
    constexpr int64_t unbounded = int64_t{1} << 42;
    offset = sequence.query_offset;
    keys = sequence.keys;
    before = slopes.before;
    after = slopes.after;
    least = call.window > 0 ? 1 - call.window : -unbounded;
    most = call.window > 0 ? call.window - 1 : unbounded;
    if (call.causal != 0 || slopes.closed_after != 0) least = 0;
    if (slopes.closed_before != 0) most = 0;
  }

  /// The keys that at least one of the query rows [first, last] sees.
  ALIBI_LANE Keys seen(int first, int last) const {
    const int64_t begin = clamp(offset + first - most, 0, keys);
    return {static_cast<int>(begin), static_cast<int>(clamp(offset + last - least + 1, begin, keys))};
  }
  /// The keys that all of the rows see.
  ALIBI_LANE Keys seen_by_all(int first, int last) const { return {seen(last, last).begin, seen(first, first).end}; }
  /// The position of a row for linear biases. A row outside the keys' positions has the position of the nearest key.
  ALIBI_LANE int position(int row) const { return static_cast<int>(clamp(offset + row, 0, keys - 1)); }
};

/// The rows of a tile in the form that inner loops use, which needs few registers. `at` counts rows from the tile's
/// first. The scores of a block of keys are computed in one of two ways. The block is plain if every row sees every key
/// and all keys are on one side. Then the bias is rise * (key - first key) plus a constant for the row. With gates, the
/// rows are also in later blocks; then a number for the key is added.
struct TileRows {
  Keys all;             ///< the keys that every row sees
  int start, last_key;  ///< position of the first row, clamped to the neighbourhood of the keys
  int count;
  float before, after;  ///< slopes

  ALIBI_LANE TileRows() {}
  template <class AnyPlace>
  ALIBI_LANE TileRows(const AnyPlace& place, int row, int rows)
      : all(place.seen_by_all(row, row + rows - 1)),
        start(static_cast<int>(clamp(place.offset + row, -rows, place.keys))),
        last_key(place.keys - 1),
        count(rows),
        before(place.before),
        after(place.after) {}

  /// Position of a row for linear biases. Queries outside the keys' positions have that of the nearest key.
  ALIBI_LANE int position(int at) const {
    const int there = start + at;
    return there < 0 ? 0 : there > last_key ? last_key : there;
  }
  ALIBI_LANE bool is_before(int key_end) const { return key_end <= position(0); }
  template <Form form = Form::slopes>
  ALIBI_LANE bool is_plain(int key, int key_end) const {
    if constexpr (form == Form::gates) {
      return all.begin <= key && key_end <= all.end && key / block_keys < position(0) / block_keys;
    } else {
      return all.begin <= key && key_end <= all.end &&
             (is_before(key_end) || position(count - 1) < key || (before == 0 && after == 0));
    }
  }
  ALIBI_LANE float rise(int key_end) const { return is_before(key_end) ? before : -after; }
};

/// The keys that one row sees, for blocks of keys that are not plain.
struct alignas(16) RowSight {
  Keys seen;
  int position, unused;

  ALIBI_LANE RowSight() {}
  ALIBI_LANE RowSight(Keys keys, int where) : seen(keys), position(where) {}
  template <class AnyPlace>
  ALIBI_LANE RowSight(const AnyPlace& place, int row) : seen(place.seen(row, row)), position(place.position(row)) {}

  /// The biased score times log2(e), or -infinity for a key that is not seen.
  ALIBI_LANE float biased(float before, float after, int key, float score) const {
    const auto distance = static_cast<float>(position - key);
    const float bias = distance > 0 ? -before * distance : after * distance;
    return seen.begin <= key && key < seen.end ? score + bias : -infinity;
  }
};

/// The sink of a row, or -infinity. Like the row's scores it has biases that count from the nearest key.
ALIBI_LANE float sink_of(const Call& call, const Place& place, int head, int row) {
  if (call.sinks == nullptr) return -infinity;
  const int64_t outside = place.offset + row - place.position(row);
  const double slope = static_cast<double>(outside < 0 ? place.after : place.before);
  return static_cast<float>(static_cast<double>(call.sinks[head]) +
                            slope * static_cast<double>(outside < 0 ? -outside : outside));
}

/// Writes the log-sum-exp of a row from its sum and maximum to base 2: once with linear biases counted from the nearest
/// key, and once with the full biases.
ALIBI_LANE void write_lse(const Place& place, int row, float max, float sum, float* lse_from_nearest, float* lse) {
  constexpr float ln2 = 0.693147180559945309f;
  const float near = (max + log2f(sum)) * ln2;
  *lse_from_nearest = near;
  // Distance of the row from the nearest key.
  const int64_t outside = place.offset + row - place.position(row);
  const double slope = static_cast<double>(outside < 0 ? place.after : place.before) * static_cast<double>(ln2);
  const auto distance = static_cast<double>(outside < 0 ? -outside : outside);
  *lse = outside == 0 ? near : static_cast<float>(near - slope * distance);
}

ALIBI_LANE const uint16_t* rows_of(const Rows& rows, int batch, int64_t row, int head) {
  return rows.data + batch * rows.batch_stride + row * rows.row_stride + head * rows.head_stride;
}
ALIBI_LANE uint16_t* writable_rows_of(const Rows& rows, int batch, int64_t row, int head) {
  return rows.data + batch * rows.batch_stride + row * rows.row_stride + head * rows.head_stride;
}

ALIBI_LANES_END
