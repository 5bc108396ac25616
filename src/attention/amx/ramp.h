// The bias of a 32 x 32 block as the initial value of its product. Tiles with bias / factor are loaded before q k' is
// added to them, so that factor * tile is the biased score and the bias needs no arithmetic. Masked pairs get a huge
// negative number. For a bias that slides the tiles contain only the part that changes within the block, and `base` is
// the rest. So the tiles are small at any distance, and no precision is lost.
//
// Bias and visibility are functions of the distance, and a block has 63 distances. Row r of a tile is a slice of these
// 63 numbers that begins one number earlier than row r - 1. So the tiles are loaded with a stride of minus one number.
#pragma once

#include <algorithm>
#include <numbers>

#include "attention/amx/plan.h"
#include "attention/amx/softmax.h"
#include "attention/amx/tiles.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

struct Ramp {
  enum class Form : uint8_t {
    constant,   ///< no tiles: the bias is `base` everywhere
    tiles,      ///< [key half][query half][16][16], divided by the factor
    diagonals,  ///< the bias of key row r and query column c is at [31 + c - r], divided by the factor
  };
  Form form = Form::constant;
  const float* values = nullptr;
  float base = 0;         ///< added to the scores
  BlockGates gates = {};  ///< added to the scores, if they are not in the tiles

  /// The bias, to which a product is added.
  Start start() const {
    return form == Form::constant ? Start::zero()
           : form == Form::tiles  ? Start::block(values)
                                  : Start::diagonals(values);
  }
};

/// HeadDecay::sums of 32 positions, in log2 units.
inline void gate_sums(const HeadDecay& decay, int64_t from, int64_t first, float* values) {
  if (!decay.has(first, first + block_rows - 1)) {
    decay.sums(from, first, block_rows, std::numbers::log2e, values);
    return;
  }
  const HeadDecay::Parts origin = decay.parts(from), at = decay.parts(first);
  const __m512d high = _mm512_set1_pd(*origin.high), low = _mm512_set1_pd(*origin.low);
  for (int64_t i = 0; i < block_rows; i += 8) {
    const __m512d sum = _mm512_add_pd(_mm512_sub_pd(_mm512_loadu_pd(at.high + i), high),
                                      _mm512_sub_pd(_mm512_loadu_pd(at.low + i), low));
    _mm256_store_ps(values + i, _mm512_cvtpd_ps(_mm512_mul_pd(sum, _mm512_set1_pd(std::numbers::log2e))));
  }
}

/// The ramps of one head: for keys before the queries, for keys after them, the most recent special one, and the most
/// recent ones with gates.
class Ramps {
 public:
  static constexpr int64_t floats = 4 * block_floats + (3 + item_blocks) * block_rows;

  Ramps(const HeadPlan& plan, float* memory)
      : plan_(plan),
        before_(memory),
        after_(memory + block_floats),
        special_(memory + 2 * block_floats),
        gated_(memory + 3 * block_floats),
        diagonals_(memory + 4 * block_floats),
        of_queries_(diagonals_ + 2 * block_rows),
        of_keys_(of_queries_ + block_rows),
        slides_(plan.bias->slides()) {
    if (!slides_) return;
    fall_before_ = static_cast<float>(plan.bias->fall(Side::before, 1)) * std::numbers::log2e_v<float>;
    fall_after_ = static_cast<float>(plan.bias->fall(Side::after, 1)) * std::numbers::log2e_v<float>;
    fill(block_rows, block_rows);
    spread(before_, block_rows);
    fill(-block_rows, -block_rows);
    spread(after_, block_rows);
  }

  /// Returns the ramp for a key block and the query block whose first row is at `position`. Its values are valid until
  /// the next call, its gates for item_blocks calls with this position.
  Ramp at(int64_t key_block, int64_t position) {
    const Ramp ramp = by_distance(key_block, position);
    return plan_.bias.decay ? with_gates(ramp, key_block * block_rows, position) : ramp;
  }

 private:
  Ramp by_distance(int64_t key_block, int64_t position) {
    const int64_t key = key_block * block_rows;
    const int64_t offset = key - position;  // distance from the first query to the first key
    const int64_t least = -offset - (block_rows - 1),
                  most = block_rows - 1 - offset;  // range of distances in the block
    const bool full = key + block_rows <= plan_.keys;
    const bool whole = full && least >= plan_.bias.least && most <= plan_.bias.most;
    if (whole && plan_.bias->is_level(least, most))
      return {.base = plan_.bias->at(least) * std::numbers::log2e_v<float>};
    Ramp ramp;
    if (slides_ && (least >= 0 || most <= 0)) {
      ramp.base = (least >= 0 ? fall_before_ : -fall_after_) * static_cast<float>(offset);
      if (whole) return {Ramp::Form::tiles, least >= 0 ? before_ : after_, ramp.base};
      fill(-offset, -offset);
    } else {
      fill(-offset, 0);
    }
    if (!whole) mask(offset);
    if (full) return {Ramp::Form::diagonals, diagonals_, ramp.base};
    spread(special_, plan_.keys - key);
    return {Ramp::Form::tiles, special_, ramp.base};
  }

  /// Adds the gates: their sum up to the query, less that up to the key. The sums of the queries count from the first
  /// one, those of the keys from the last key before it, and `base` has the sum between, so that no digits cancel. In a
  /// block on the diagonal all count from the first query, and sharp gates are summed for each pair.
  Ramp with_gates(Ramp ramp, int64_t key, int64_t position) {
    const HeadDecay& decay = plan_.bias.decay;
    const int64_t last_key = key + block_rows - 1, from = last_key < position ? last_key : position;
    if (position != gates_from_) gate_sums(decay, gates_from_ = position, position, of_queries_);
    calls_ = (calls_ + 1) % item_blocks;
    float* const keys = of_keys_ + calls_ * block_rows;
    gate_sums(decay, from, key, keys);
    ramp.base += static_cast<float>(decay.sum(from, position) * std::numbers::log2e);
    const bool by_pair = last_key > position && differences_lose_digits({of_queries_, block_rows}, {keys, block_rows});
    const bool other_document = decay.document(position + block_rows - 1) > key;
    if (ramp.form == Ramp::Form::constant && !by_pair && !other_document) {
      ramp.gates = {of_queries_, keys};
      return ramp;
    }
    const __m512 inverse = _mm512_set1_ps(1 / plan_.factor);
    Lanes queries = times(load_lanes(of_queries_), inverse);
    store_lanes(keys, times(load_lanes(keys), inverse));
    for (int64_t row = 0; row < block_rows; ++row) {
      __m512 of_key = _mm512_set1_ps(keys[row]);
      if (by_pair) {
        alignas(64) float of_pairs[block_rows];
        gate_sums(decay, key + row, position, of_pairs);
        queries = times(load_lanes(of_pairs), inverse);
        of_key = _mm512_setzero_ps();
      }
      const int64_t at = row / 16 * 2 * tile_floats + row % 16 * 16;
      __m512 low = _mm512_sub_ps(queries.low, of_key), high = _mm512_sub_ps(queries.high, of_key);
      if (ramp.form != Ramp::Form::constant) {
        const bool is_tile = ramp.form == Ramp::Form::tiles;
        const float* bias = ramp.values + (is_tile ? at : block_rows - 1 - row);
        low = _mm512_add_ps(low, _mm512_loadu_ps(bias));
        high = _mm512_add_ps(high, _mm512_loadu_ps(bias + (is_tile ? tile_floats : vector_floats)));
      }
      _mm512_store_ps(gated_ + at, low);
      _mm512_store_ps(gated_ + at + tile_floats, high);
    }
    if (other_document) hide_other_documents(key, position);
    return {Ramp::Form::tiles, gated_, ramp.base};
  }

  /// Masks the keys before the document of each query.
  void hide_other_documents(int64_t key, int64_t position) {
    for (int64_t lane = 0; lane < block_rows; ++lane) {
      const int64_t hidden = std::min(plan_.bias.decay.document(position + lane) - key, block_rows);
      for (int64_t row = 0; row < hidden; ++row) {
        gated_[row / 16 * 2 * tile_floats + lane / 16 * tile_floats + row % 16 * 16 + lane % 16] = masked_value();
      }
    }
  }

  /// Fills in the biases at the distances around that of the first key and the first query (Bias::tile).
  void fill(int64_t distance, int64_t origin) {
    plan_.bias->tile(distance - (block_rows - 1), origin, 2 * block_rows, plan_.factor, diagonals_);
  }

  /// Masks the distances that are not seen.
  void mask(int64_t offset) {
    const __m512 masked = _mm512_set1_ps(masked_value());
    const __m512 least = _mm512_set1_ps(relative(plan_.bias.least, offset));
    const __m512 most = _mm512_set1_ps(relative(plan_.bias.most, offset));
    for (int64_t i = 0; i < 2 * block_rows; i += vector_floats) {
      const __m512 x = diagonal_numbers(i);
      const __mmask16 hidden = _mm512_cmp_ps_mask(x, least, _CMP_LT_OQ) | _mm512_cmp_ps_mask(x, most, _CMP_GT_OQ);
      _mm512_mask_store_ps(diagonals_ + i, hidden, masked);
    }
  }

  /// Expands the diagonals to tiles. Keys from `keys` on do not exist and are masked.
  void spread(float* tiles, int64_t keys) const {
    const __m512 masked = _mm512_set1_ps(masked_value());
    for (int64_t row = 0; row < block_rows; ++row) {
      float* to = tiles + row / 16 * 2 * tile_floats + row % 16 * 16;
      const float* from = diagonals_ + block_rows - 1 - row;
      _mm512_store_ps(to, row < keys ? _mm512_loadu_ps(from) : masked);
      _mm512_store_ps(to + tile_floats, row < keys ? _mm512_loadu_ps(from + vector_floats) : masked);
    }
  }

  /// The values of c - r on the diagonals [i, i + 16).
  static __m512 diagonal_numbers(int64_t i) {
    const __m512 lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(lane, _mm512_set1_ps(static_cast<float>(i - (block_rows - 1))));
  }

  /// The value of c - r at a distance, clamped to values that occur in a block.
  static float relative(int64_t distance, int64_t offset) {
    const int64_t x = distance + offset;
    return static_cast<float>(x < -block_rows ? -block_rows : x > block_rows ? block_rows : x);
  }

  float masked_value() const {
    constexpr float masked_score = -1e30f;
    return masked_score / plan_.factor;
  }

  const HeadPlan& plan_;
  float* before_;
  float* after_;
  float* special_;
  float* gated_;
  float* diagonals_;   ///< [64]; no block uses the last one
  float* of_queries_;  ///< [32]: with gates, their sums from the position gates_from_ on, in log2 units
  float* of_keys_;     ///< [item_blocks][32]: the same up to the keys of the last calls
  int64_t gates_from_ = -1, calls_ = 0;
  bool slides_;
  float fall_before_ = 0, fall_after_ = 0;  ///< of a bias that slides, times log2(e)
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
