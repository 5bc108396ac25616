// The bias of a 32 x 32 block as the start of its product: tiles that hold bias / factor are loaded before q k' is
// added to them, so that factor * tile is the biased score and the bias costs no arithmetic. Masked pairs hold a huge
// negative number. Only what changes within the block is in the tiles; `base` is the rest, so that the tiles stay small
// whatever the distance, and nothing is lost beside the scores.
#pragma once

#include "attention/amx_plan.h"
#include "attention/amx_tiles.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

struct Ramp {
  const float* tiles = nullptr;  ///< [key half][query half][16][16], divided by the factor
  float base = 0;                ///< to be added to the scores
};

/// The ramps of one head. Holds three blocks: keys before the queries, keys after, and the latest special one.
class Ramps {
 public:
  static constexpr int64_t floats = 3 * block_floats;

  Ramps(const HeadPlan& plan, float* memory)
      : plan_(plan), before_(memory), after_(memory + block_floats), special_(memory + 2 * block_floats) {
    fill({.before = plan.before, .after = -plan.before}, before_);
    fill({.before = -plan.after, .after = plan.after}, after_);
  }

  /// For a key block and the query block whose first row has the given position. Valid until the next call.
  Ramp at(int64_t key_block, int64_t position) {
    const int64_t key = key_block * block_rows;
    const int64_t offset = key - position;  // of the first key from the first query
    const int64_t least = -offset - (block_rows - 1), most = block_rows - 1 - offset;  // distances in the block
    const bool whole = key + block_rows <= plan_.keys && least >= plan_.bias.least && most <= plan_.bias.most;
    Shape shape = {.before = plan_.before, .after = plan_.after};
    shape.least = relative(plan_.bias.least, offset);
    shape.most = relative(plan_.bias.most, offset);
    shape.keys = plan_.keys - key;
    if (least >= 0) {
      const float base = plan_.before * static_cast<float>(offset);
      if (whole) return {before_, base};
      shape.after = -shape.before;
      fill(shape, special_);
      return {special_, base};
    }
    if (most <= 0) {
      const float base = plan_.after * -static_cast<float>(offset);
      if (whole) return {after_, base};
      shape.before = -shape.after;
      fill(shape, special_);
      return {special_, base};
    }
    shape.shift = -static_cast<float>(offset);
    fill(shape, special_);
    return {special_, 0};
  }

 private:
  /// The bias of key row r and query column c, as a function of c - r: with x = c - r + shift it is -before * x for
  /// x >= 0 and after * x below, where least <= c - r <= most and r < keys.
  struct Shape {
    float before = 0, after = 0;
    float shift = 0;
    float least = -block_rows, most = block_rows;
    int64_t keys = block_rows;
  };

  /// A distance's c - r, cut to what a block can reach.
  static float relative(int64_t distance, int64_t offset) {
    const int64_t x = distance + offset;
    return static_cast<float>(x < -block_rows ? -block_rows : x > block_rows ? block_rows : x);
  }

  void fill(const Shape& shape, float* tiles) const {
    constexpr float masked_score = -1e30f;
    const __m512 inverse = _mm512_set1_ps(1 / plan_.factor);
    const __m512 masked = _mm512_mul_ps(_mm512_set1_ps(masked_score), inverse);
    const __m512 lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 least = _mm512_set1_ps(shape.least), most = _mm512_set1_ps(shape.most);
    for (int64_t row = 0; row < block_rows; ++row) {
      for (int64_t half = 0; half < 2; ++half) {
        const __m512 x = _mm512_add_ps(lane, _mm512_set1_ps(static_cast<float>(16 * half - row)));
        const __m512 shifted = _mm512_add_ps(x, _mm512_set1_ps(shape.shift));
        const __mmask16 after = _mm512_cmp_ps_mask(shifted, _mm512_setzero_ps(), _CMP_LT_OQ);
        const __m512 slope = _mm512_mask_mov_ps(_mm512_set1_ps(-shape.before), after, _mm512_set1_ps(shape.after));
        __mmask16 seen = _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ);
        seen = _mm512_mask_cmp_ps_mask(seen, x, most, _CMP_LE_OQ);
        if (row >= shape.keys) seen = 0;
        const __m512 value = _mm512_mask_mul_ps(masked, seen, _mm512_mul_ps(slope, shifted), inverse);
        _mm512_store_ps(tiles + row / 16 * 2 * tile_floats + half * tile_floats + row % 16 * 16, value);
      }
    }
  }

  const HeadPlan& plan_;
  float* before_;
  float* after_;
  float* special_;
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
