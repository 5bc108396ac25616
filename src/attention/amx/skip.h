// The skip rule (skip.h) for a block of 32 queries and the key blocks that it has not visited yet.
#pragma once

#include <cmath>

#include "attention/amx/plan.h"
#include "attention/amx/softmax.h"
#include "attention/skip_weights.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

/// The data of a query block that the rule needs.
struct SkipRows {
  int64_t position = 0;             ///< position of the first row
  int64_t rows = 0;                 ///< <= 32
  const float* norms = nullptr;     ///< [32]: upper bounds of |q|
  const float* products = nullptr;  ///< [32]: product of q and the centre of the keys, as a score
  const float* shares = nullptr;    ///< [32]: position of |q| on the chord between the levels
  Levels levels;                    ///< the chord's levels
  const float* sums = nullptr;      ///< [32]: sum of the weights so far
  const float* maxima = nullptr;    ///< [32]: reference of the weights
};

class SkipRule {
 public:
  /// `bounds` is null if the rule does not apply.
  SkipRule(const Problem& problem, const HeadPlan& plan, const WeightBounds* bounds)
      : plan_(plan), active_(bounds != nullptr) {
    if (!active_) return;
    keys_ = bounds->head(plan.sequence, plan.head);
    size_ = bounds->size();
    log_budget_ = std::log2(skip_budget(problem));
  }

  bool active() const { return active_; }

  /// Computes products and shares of the queries [row, row + rows) from their norms.
  void measure_queries(const Problem& problem, int64_t row, int64_t rows, const float* norms, float* products,
                       float* shares, Levels& levels) const {
    const Lanes zero = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    store_lanes(products, zero);
    store_lanes(shares, zero);
    if (keys_.centre_norm != 0) {
      const Sequence& sequence = problem.sequences[plan_.sequence];
      centre_products(problem, sequence, plan_.head, row, rows, keys_.centre, size_, products);
    }
    const float unit = std::fabs(plan_.factor);
    float least = HUGE_VALF, most = 0;
    for (int64_t i = 0; i < rows; ++i) {
      least = std::fmin(least, unit * norms[i]);
      most = std::fmax(most, unit * norms[i]);
    }
    levels = keys_.levels_of(least, most);
    for (int64_t i = 0; i < rows; ++i) shares[i] = levels.share(unit * norms[i]);
  }

  /// least[32] = a lower bound of all scores of a row, including that of the key at its position.
  void least_scores(const float* norms, const float* products, float longest_key, float* least) const {
    const __m512 reach = _mm512_set1_ps(-std::fabs(plan_.factor) * longest_key);
    const __m512 radius = _mm512_set1_ps(-std::fabs(plan_.factor) * keys_.radius_before[count()]);
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const __m512 norm = _mm512_load_ps(norms + half);
      const __m512 centred = _mm512_fmadd_ps(norm, radius, _mm512_load_ps(products + half));
      _mm512_store_ps(least + half, _mm512_max_ps(_mm512_mul_ps(norm, reach), centred));
    }
  }

  /// The first of the key blocks [low, left), which lie before the visited ones, that must be visited, or `left` if
  /// there is none.
  int64_t first_block(const SkipRows& rows, int64_t low, int64_t left) const {
    if (low >= left) return low;
    const Lanes owed = owed_by(rows, keys_.norm_before[left], -plan_.before);
    const auto negligible = [&](int64_t end) {
      return fits(rows, owed, keys_.chord_before(rows.levels, end), plan_.before,
                  rows.position - (end * block_rows - 1));
    };
    if (!negligible(low + 1)) return low;
    int64_t end = low + 1, too_far = left + 1;
    while (too_far - end > 1) {
      const int64_t middle = end + (too_far - end) / 2;
      (negligible(middle) ? end : too_far) = middle;
    }
    return end;
  }

  /// The end of the key blocks [right, high), which lie after the visited ones, that must be visited, or `right` if
  /// there is none.
  int64_t last_block(const SkipRows& rows, int64_t right, int64_t high) const {
    if (high <= right) return high;
    const Lanes owed = owed_by(rows, keys_.norm_from[right], plan_.after);
    const auto negligible = [&](int64_t begin) {
      return fits(rows, owed, keys_.chord_from(rows.levels, begin), plan_.after, begin * block_rows - rows.position);
    };
    if (!negligible(high - 1)) return high;
    int64_t begin = high - 1, too_near = right - 1;
    while (begin - too_near > 1) {
      const int64_t middle = too_near + (begin - too_near) / 2;
      (negligible(middle) ? begin : too_near) = middle;
    }
    return begin;
  }

 private:
  int64_t count() const { return (plan_.keys + block_rows - 1) / block_rows; }

  /// For each row, the logarithm of the weight of the remaining keys divided by the weight that they may have, without
  /// the terms for their number and distance. Those terms belong to the first row and change by -slope_per_row with
  /// each row. Rounding never makes the result too small.
  Lanes owed_by(const SkipRows& rows, float norm, float slope_per_row) const {
    Lanes owed;
    // Covers two rounding errors. Rounding of weights to bfloat16 may change the ratio of visited to skipped weights by
    // log2((1 + 2^-8) / (1 - 2^-8)) = 0.0113. Sums of weights are rounded with 256 weights per addition.
    const __m512 fixed = _mm512_set1_ps(0x1p-6f + static_cast<float>(plan_.keys) * 0x1p-31f);
    const __m512 reach = _mm512_set1_ps(std::fabs(plan_.factor) * (norm + keys_.centre_norm));
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const __m512 max = _mm512_load_ps(rows.maxima + half), products = _mm512_load_ps(rows.products + half);
      const __m512 sum = _mm512_add_ps(log2_of(_mm512_load_ps(rows.sums + half)), _mm512_set1_ps(log_budget_));
      __m512 lanes = _mm512_sub_ps(_mm512_sub_ps(products, max), sum);
      // Covers the rounding of the scores, which grows with them.
      const __m512 rounded = _mm512_fmadd_ps(_mm512_load_ps(rows.norms + half), reach, _mm512_abs_ps(max));
      lanes = _mm512_add_ps(lanes, _mm512_fmadd_ps(rounded, _mm512_set1_ps(0x1p-12f), fixed));
      lanes = _mm512_fmadd_ps(row_numbers(half), _mm512_set1_ps(slope_per_row), lanes);
      (half == 0 ? owed.low : owed.high) = lanes;
    }
    return owed;
  }

  static __m512 row_numbers(int64_t first) {
    const __m512 lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(lane, _mm512_set1_ps(static_cast<float>(first)));
  }

  /// Whether the weight of the remaining keys, at this distance from the first row, is within the limit for every row.
  static bool fits(const SkipRows& rows, const Lanes& owed, const Chord& weights, float slope, int64_t distance) {
    const float penalty = slope * static_cast<float>(distance);
    const float rounding = 0x1p-20f * (std::fabs(penalty) + std::fabs(weights.low) + weights.rise);
    const __m512 known = _mm512_set1_ps(weights.low - penalty + rounding), rise = _mm512_set1_ps(weights.rise);
    const auto excess = [&](__m512 lanes, int64_t half) {
      return _mm512_add_ps(_mm512_fmadd_ps(_mm512_load_ps(rows.shares + half), rise, known), lanes);
    };
    // The comparison is false for NaN.
    const __mmask16 low = _mm512_cmp_ps_mask(excess(owed.low, 0), _mm512_setzero_ps(), _CMP_LE_OQ);
    const __mmask16 high = _mm512_cmp_ps_mask(excess(owed.high, 16), _mm512_setzero_ps(), _CMP_LE_OQ);
    const auto all = [](__mmask16 found, __mmask16 wanted) { return (found & wanted) == wanted; };
    return all(low, lane_mask(rows.rows, 0)) && all(high, lane_mask(rows.rows, 16));
  }

  const HeadPlan& plan_;
  bool active_;
  WeightBounds::Head keys_;
  int64_t size_ = 0;
  float log_budget_ = 0;
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
