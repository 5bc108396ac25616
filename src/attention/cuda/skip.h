// The skip rule on a GPU: the CPU's bound (attention/skip/weights.h), asked row by row.
//
// With the keys' centre c, for a row with query q, slope m and x = |scale q|, all in powers of two, the keys that
// remain from distance D on weigh at most
//
//     R = 2^(scale q c' + F(x) - m D - max)      F(x) = log2 of the sum of 2^(x |k - c| - m (distance - D))
//
// in units of the row's maximum. With gates, m D is raised by their fall from the nearest of these keys to the row, and
// m (distance - D) by that from each key to the nearest. F is convex; bounds.h keeps it for 8 values of x and for each
// key block. The row may skip them once R <= budget * sum, where these are of float32 weights before they are rounded
// for the product with the values. Rounded ones are at most 1 + u of them, u = 2^-8 for bfloat16 and 2^-11 for float16,
// and so is what skipping changes of out: the exponent is raised by log2(1 + 2^-8) < 0.0057. (What float16 rounds more
// coarsely lies below 2^-22 of the row's maximum, see forward.h.) It is raised, too, by
//   2^-12 (x (max|k| + |c|) + |max|)   for scores: tensor cores add 17 numbers at a time, each cut to 23 bits below the
//                                      largest, head_dim / 16 times: (head_dim / 16) 17 2^-23 < 2^-14.9 of |q||k|;
//                                      for q c', its fmas: 2^-16 of |q||c|; for the maximum itself, 2^-24
//   2^-20 (m (D + 192) + |F| terms)    for biases, of which the kernels take parts 192 keys from the row, and for these
//                                      lines themselves; with gates their fall too, whose parts are rounded to 2^-24
//   keys 2^-28                         for the sum: a rounding or two for each 64 keys, each of 2^-24
//   0.0021                             for 2^x to 2^-21, and sums of 16 weights of a lane, of lanes, and of blocks
// and the budget is (1 - 2^-9) of the tolerance (skip_budget()), as on the CPU.
#pragma once

#include "attention/cuda/gates.h"
#include "attention/cuda/order.h"
#include "attention/cuda/tile.h"

ALIBI_LANES_BEGIN

constexpr float norm_rounding = 1.0f + 0x1p-16f;
constexpr float flushed_square = 0x1p-125f;

/// An upper bound of the norm from a float32 sum of squares of up to 256 values, or infinity if it is not finite.
ALIBI_LANE float norm_bound(float squares, int values) {
  const float all = squares + static_cast<float>(values) * flushed_square;
  return all <= 3.4e38f ? sqrtf(all) * norm_rounding : infinity;
}

/// The levels of x for which bounds are stored, in units of a typical query's x. Most queries are within a factor of
/// two of it.
ALIBI_LANE float bound_level(int level) {
  return level == 0   ? 0.0f
         : level == 1 ? 0.5f
         : level == 2 ? 0.7f
         : level == 3 ? 0.85f
         : level == 4 ? 1.0f
         : level == 5 ? 1.2f
         : level == 6 ? 1.5f
                      : 2.2f;
}

/// Data of a row that the rule needs.
struct alignas(16) SkipRow {
  float product;  ///< product of the query and the centre, as a score
  float x;        ///< upper bound of |scale q|
  float share;    ///< position of x between its level and the next; beyond the last level, the distance in x
  int32_t level;
};

/// Applies the rule to a head's tile of queries. Each warp has 16 m rows of the tile.
template <Type type, class Operand, int m, Form form>
struct SkipRule {
  /// Computes the data of the rows from the queries in shared memory. Each warp computes its own rows.
  static ALIBI_LANE void measure_rows(const ForwardArguments& a, const Task& task, uint32_t queries, uint32_t rows) {
    const int lane = thread_index() % 32, at = thread_index() / 32 * 16 * m + lane;
    if (lane < 16 * m) {
      const int size = a.call.head_dim, kv_head = task.head / (a.call.heads / a.call.kv_heads);
      const int64_t of_keys = int64_t{task.sequence} * a.call.kv_heads + kv_head;
      const float* const centre = a.bounds.centres + of_keys * size;
      float squares = 0, product = 0;
      for (int chunk = 0; chunk < size / 8; ++chunk) {
        const Chunk values = shared_load<Chunk>(Operand::address(queries, at, chunk));
        ALIBI_UNROLLED
        for (int e = 0; e < 8; ++e) {
          const float value = unpack<type>(values.x[e / 2], e % 2);
          squares = fmaf(value, value, squares);
          product = fmaf(value, centre[chunk * 8 + e], product);
        }
      }
      const float length = a.bounds.lengths[int64_t{task.sequence} * a.call.heads + task.head];
      SkipRow found = {product * a.call.scale2, fabsf(a.call.scale2) * norm_bound(squares, size), 0, 0};
      while (found.level < bound_levels - 1 && length * bound_level(found.level + 1) <= found.x) ++found.level;
      const float low = length * bound_level(found.level);
      found.share = found.x - low;
      if (found.level < bound_levels - 1) {
        found.share = found.share / (length * bound_level(found.level + 1) - low) * (1 + 0x1p-20f);
      }
      shared_store(rows + static_cast<uint32_t>(at * sizeof(SkipRow)), found);
    }
    warp_sync();
  }

  /// Returns true if the thread's row needs none of the keys beyond a block, before it (towards < 0) or after it. The
  /// four lanes that share rows divide them: each lane computes the sum and the test for one row. `gate_rows` are the
  /// GateRows of the tile.
  static ALIBI_LANE bool over(const ForwardArguments& a, const TileRows& tile, const TileGates<form>& gates,
                              int64_t first, int block, int towards, const float (&max)[2 * m],
                              const float (&sum)[2 * m], uint32_t rows, uint32_t gate_rows) {
    const bool before = towards < 0;
    const int edge =
        before ? block * block_keys : (block + 1) * block_keys;  // keys before this edge, or from it on, remain
    if (before ? tile.start < edge : tile.start + tile.count - 1 >= edge) return false;
    const int at = own_row(), position = tile.position(at);
    const KeyBound& keys = before ? a.bounds.before[first + block] : a.bounds.from[first + block + 1];
    return negligible(a, keys, tile, before ? tile.before : tile.after,
                      before ? position - (edge - 1) : edge - position, fall(gates, block, gate_rows, at), at,
                      own_value(max), own_sum(sum), rows);
  }

 private:
  /// By how much the gates weaken all keys before a block until they reach the row. In another document they are not
  /// seen.
  static ALIBI_LANE float fall(const TileGates<form>& gates, int block, uint32_t gate_rows, int at) {
    if constexpr (form == Form::gates) {
      const auto row = shared_load<GateRow>(gate_rows + static_cast<uint32_t>(at * sizeof(GateRow)));
      return row.document >= block * block_keys ? 1e30f : -(gates.since(block) + row.from_tile);
    } else {
      return 0;
    }
  }

  static ALIBI_LANE bool negligible(const ForwardArguments& a, const KeyBound& keys, const TileRows& tile, float slope,
                                    int distance, float fall, int at, float max, float sum, uint32_t rows) {
    const auto query = shared_load<SkipRow>(rows + static_cast<uint32_t>(at * sizeof(SkipRow)));
    const float low = keys.weights[query.level];
    const float rise = query.level < bound_levels - 1 ? keys.weights[query.level + 1] - low : keys.radius;
    const float weights = query.share * rise;
    float penalty = slope * static_cast<float>(distance), biases = slope * static_cast<float>(distance + 192);
    if constexpr (form == Form::gates) {
      penalty += fall;
      biases += fall;
    }
    const float of_scores = fmaf(query.x, keys.norm, fabsf(max)) * 0x1p-12f;
    const float of_biases = (fabsf(low) + fabsf(weights) + biases) * 0x1p-20f;
    const float of_sums = 0x1p-7f + static_cast<float>(tile.last_key) * 0x1p-28f;
    const float exponent = query.product + low + weights - penalty - max + (of_scores + of_biases + of_sums);
    // NaN is not negligible.
    return at >= tile.count || (exponent < 100.0f && power_of_2(exponent) <= a.budget * sum);
  }

  /// The row of the tile, among the lane's 2 m rows, that the lane tests.
  static ALIBI_LANE int own_row() {
    const int lane = thread_index() % 32;
    return thread_index() / 32 * 16 * m + lane / 4 + lane % (2 * m) * 8;
  }
  static ALIBI_LANE float own_value(const float (&x)[2 * m]) {
    const int lane = thread_index();
    if constexpr (m == 1) return lane % 2 != 0 ? x[1] : x[0];
    const float low = lane % 2 != 0 ? x[1] : x[0], high = lane % 2 != 0 ? x[2 * m - 1] : x[2 * m - 2];
    return lane / 2 % 2 != 0 ? high : low;
  }
  static ALIBI_LANE float own_sum(const float (&x)[2 * m]) {
    const bool odd = thread_index() % 2 != 0, high = thread_index() / 2 % 2 != 0;
    if constexpr (m == 1) {
      const float own = (odd ? x[1] : x[0]) + lane_xor(odd ? x[0] : x[1], 1);
      return own + lane_xor(own, 2);
    } else {
      const float a = (high ? x[2] : x[0]) + lane_xor(high ? x[0] : x[2], 2);
      const float b = (high ? x[3] : x[1]) + lane_xor(high ? x[1] : x[3], 2);
      return (odd ? b : a) + lane_xor(odd ? a : b, 1);
    }
  }
};

ALIBI_LANES_END
