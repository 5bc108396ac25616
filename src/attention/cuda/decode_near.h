// Visits the near keys of a tile of cached decoding, and applies the skip rule to the others before they are read. It
// is the rule of docs/explanation/skip-rule.md (Decoding), with the tree of attention/kernel.h.
//
// A range of n keys at distance D or more, none longer than N, none farther from the centre c than r, weighs at most
//
//     2^(min(x N, scale q c' + x r) - m D - max) (1 - 2^(-m n)) / (1 - 2^-m)      x = |scale q|, all in powers of two
//
// in units of the row's maximum over the near keys. With gates, their sum from the last key of the range to the row is
// added to the exponent. Ranges are dropped, farthest first, while the sum of their bounds is within budget * sum. The
// exponent is raised for rounding errors as in skip.h, where scores are bounded by x N and x |c|.
#pragma once

#include "attention/cuda/decode.h"
#include "attention/cuda/skip.h"

ALIBI_LANES_BEGIN

/// Applies the rule to one row and one side. All lanes of a warp work together.
template <Form form>
struct DecodeRule {
  const DecodeArguments& a;
  int64_t head;  ///< number of the key/value head: batch * kv_heads + kv_head
  int position;  ///< position of the row
  int last_key;
  float product;  ///< product of the query and the centre, as a score
  float x;        ///< upper bound of |scale q|
  float max;      ///< maximum over the near keys
  float budget;   ///< weight that may be dropped, relative to max
  DecodeGates<form> gates;
  float slope;
  float all_keys;  ///< weight of infinitely many keys, relative to the nearest one

  ALIBI_LANE void set_slope(float in_powers_of_2) {
    slope = in_powers_of_2;
    all_keys = -1 / expm1f(-slope / log2_of_e);
  }

  /// Upper bound of the weight of `keys` keys from a distance on. `fall` is the least that gates take from them.
  ALIBI_LANE float bound(KeyNode node, int distance, int keys, float fall) const {
    const float scores = x * node.norm, number = static_cast<float>(keys);
    const float most = fminf(scores, fmaf(x, node.radius, product));
    const float of_scores = (scores + x * a.tree.centre_norms[head] + fabsf(max)) * 0x1p-12f;
    const float of_biases = (slope * static_cast<float>(distance + 192) + fall) * 0x1p-20f;
    const float of_sums = 0x1p-7f + static_cast<float>(last_key) * 0x1p-28f;
    const float exponent = most - slope * static_cast<float>(distance) - fall - max + (of_scores + of_biases + of_sums);
    const float weights = slope > 0 ? fminf(number, -all_keys * expm1f(-slope / log2_of_e * number)) : number;
    return power_of_2(exponent) * (weights * (1 + 0x1p-16f));
  }

  /// Returns the keys of [begin, end), all on one side of the row, that the row must visit. Starts at the top of the
  /// tree. Each lane examines a node. Nodes are dropped from the farthest on, as long as they fit the budget together.
  /// Then the children of the first node that does not fit are examined.
  template <bool before>
  ALIBI_LANE Keys needed(Keys keys) const {
    const int lane = thread_index() % 32;
    float spent = 0;
    for (int level = a.tree.levels - 1; level >= 0; --level) {
      const int64_t span = int64_t{block_keys} << (4 * level);
      const int first = static_cast<int>((before ? keys.begin : keys.end - 1) / span);
      const int node = before ? first + lane : first - lane;
      const int64_t begin = clamp(node * span, keys.begin, keys.end), end = clamp((node + 1) * span, begin, keys.end);
      const bool real =
          keys.begin < keys.end && node >= 0 && node / node_children == first / node_children && begin < end;
      float weight = 0;
      if (real) {
        const int64_t distance = before ? position - (end - 1) : begin - position;
        weight = bound(a.tree.level[level][head * a.tree.stride[level] + node], static_cast<int>(distance),
                       static_cast<int>(end - begin), before ? -gates.since(static_cast<int>(end)) : 0.0f);
      }
      // Prefix sums over the lanes.
      float sums = weight, total = weight;
      ALIBI_UNROLLED
      for (int bits = 1; bits < node_children; bits *= 2) {
        const float other = lane_xor(total, bits);
        if ((lane & bits) != 0) sums += other;
        total += other;
      }
      const uint32_t fit = warp_votes(real && spent + sums <= budget);  // false for NaN
      const int count = lowest_bit(~fit);
      if (count == 0) continue;
      float dropped = lane == count - 1 ? sums : 0.0f;
      ALIBI_UNROLLED
      for (int bits = 1; bits < 32; bits *= 2) dropped += lane_xor(dropped, bits);
      spent += dropped;
      if (before) keys.begin = static_cast<int>(clamp((int64_t{first} + count) * span, keys.begin, keys.end));
      if (!before) keys.end = static_cast<int>(clamp((int64_t{first} - count + 1) * span, keys.begin, keys.end));
    }
    return keys;
  }
};

/// One thread block for each tile.
template <Type type, int columns, Form form>
struct DecodeNear {
  using Arguments = DecodeArguments;
  using Visit = DecodeVisit<type, columns, form>;
  static constexpr int threads = Visit::threads, blocks_at_once = 2;
  static constexpr int near_keys =
      2 * block_keys;  ///< keys on each side of the queries that are visited before the rule is applied
  static constexpr uint32_t needed_at = Visit::shared_bytes;
  static constexpr int shared_bytes = Visit::shared_bytes + decode_rows * sizeof(Keys);

  static ALIBI_LANE void run(const Arguments& a) {
    const int of_head = block_index() / a.tiles;
    const DecodeTile tile(a, of_head, block_index() % a.tiles);
    Visit visit(a, tile);
    const Keys seen = visit.seen();
    if (seen.begin == seen.end) {
      if (thread_index() == 0) a.limits[block_index()] = {0, 0, 0, 0};
      return Visit::write_nothing(a, tile, 0);
    }
    const Keys near = near_of(a, tile, seen);
    visit.visit(blocks_of(near));
    visit.finish(0);
    block_sync();  // now the results of the rows are complete
    for (int row = thread_index() / 32; row < tile.count; row += threads / 32) {
      const Keys own = needed(a, of_head, row, near, visit.key_count);
      if (thread_index() % 32 == 0) shared_store(needed_at + static_cast<uint32_t>(row * sizeof(Keys)), own);
    }
    block_sync();
    if (thread_index() > 0) return;
    Keys all = near;
    for (int row = 0; row < tile.count; ++row) {
      const auto own = shared_load<Keys>(needed_at + static_cast<uint32_t>(row * sizeof(Keys)));
      all.begin = own.begin < all.begin ? own.begin : all.begin;
      all.end = own.end > all.end ? own.end : all.end;
    }
    const Keys near_blocks = blocks_of(near), blocks = blocks_of(all);
    a.limits[block_index()] = {blocks.begin, near_blocks.begin, near_blocks.end, blocks.end};
  }

  /// The keys within near_keys of the queries, or the nearest ones. They end at block boundaries or at the last key
  /// that is seen.
  static ALIBI_LANE Keys near_of(const Arguments& a, const DecodeTile& tile, Keys seen) {
    const int64_t offset = a.call.sequences[tile.batch].query_offset;
    const int64_t first = clamp(offset + tile.query(0), seen.begin, seen.end - 1);
    const int64_t last = clamp(offset + tile.query(tile.count - 1), first, seen.end - 1);
    const int64_t begin = (first - near_keys + 1) / block_keys * block_keys;
    const int64_t end = (last + near_keys + block_keys - 1) / block_keys * block_keys;
    return {static_cast<int>(clamp(begin, seen.begin, seen.end)), static_cast<int>(clamp(end, seen.begin, seen.end))};
  }

  /// A sink counts as a visited key.
  static ALIBI_LANE void visit_sink(const Arguments& a, const DecodeTile& tile, int at, PartialRow& found) {
    const Place place(a.call, a.call.sequences[tile.batch], tile.head(at));
    const float sink = sink_of(a.call, place, tile.head(at), tile.query(at)), max = fmaxf(found.max, sink);
    if (sink > -infinity) found = {max, found.sum * power_of_2(found.max - max) + power_of_2(sink - max)};
  }

  /// The keys that a row must visit, including the near ones.
  static ALIBI_LANE Keys needed(const Arguments& a, int of_head, int at, Keys near, int keys) {
    const int lane = thread_index() % 32;
    auto row = shared_load<DecodeRow>(Visit::row_at(at));
    const DecodeTile tile(a, of_head, block_index() % a.tiles);
    if (a.call.sinks != nullptr) visit_sink(a, tile, at, row.found);
    const Keys seen = row.sight.seen;
    float squares = 0, product = 0;
    if (lane * 8 < a.call.head_dim) {
      const auto values = shared_load<Chunk>(Visit::Operand::address(Visit::q_at, at, lane));
      const float* const centre = a.tree.centres + int64_t{of_head} * a.call.head_dim + lane * 8;
      ALIBI_UNROLLED
      for (int e = 0; e < 8; ++e) {
        const float value = unpack<type>(values.x[e / 2], e % 2);
        squares = fmaf(value, value, squares);
        product = fmaf(value, centre[e], product);
      }
    }
    ALIBI_UNROLLED
    for (int bits = 1; bits < 32; bits *= 2) {
      squares += lane_xor(squares, bits);
      product += lane_xor(product, bits);
    }
    DecodeRule<form> rule = {a,
                             of_head,
                             row.sight.position,
                             keys - 1,
                             product * a.call.scale2,
                             fabsf(a.call.scale2) * norm_bound(squares, a.call.head_dim),
                             row.found.max,
                             a.budget * row.found.sum,
                             Visit::gates_of(a, tile, at),
                             0,
                             0};
    Keys own = near;
    if (seen.begin < seen.end && seen.begin < near.begin) {
      own.begin = seen.begin;
      rule.set_slope(row.before);
      if (row.before > 0 || form == Form::gates) own.begin = rule.template needed<true>({seen.begin, near.begin}).begin;
    }
    if (seen.begin < seen.end && seen.end > near.end) {
      own.end = seen.end;
      rule.set_slope(row.after);
      if (row.after > 0) own.end = rule.template needed<false>({near.end, seen.end}).end;
    }
    return own;
  }
};

ALIBI_LANES_END
