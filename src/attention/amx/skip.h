// The skip rule (skip.h) for a block of 32 queries, solved for the distance: a row that has collected sum * exp2(max)
// owes the keys at distance d and beyond at most exp2(reach - slope d) * count, so they may be skipped where d is at
// least (reach + log2(count) - log2(budget sum) - max) / slope.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "attention/amx/plan.h"
#include "attention/amx/softmax.h"
#include "attention/skip.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

/// What the rule asks of a query block.
struct SkipRows {
  int64_t position = 0;           ///< of the first row
  int64_t rows = 0;               ///< <= 32
  const float* norms = nullptr;   ///< [32]: bounds on |q|
  const float* sums = nullptr;    ///< [32]: of the weights so far
  const float* maxima = nullptr;  ///< [32]: their reference
};

class SkipRule {
 public:
  SkipRule(const Problem& problem, const HeadPlan& plan)
      : plan_(plan),
        active_(skip_rule_applies(problem)),
        log_budget_(active_ ? std::log2(skip_budget(problem)) : 0.0f) {
    log_count_before_ = log_count(plan.before);
    log_count_after_ = log_count(plan.after);
  }

  bool active() const { return active_; }

  /// The first key block that matters, given a bound on the norms of the keys before.
  int64_t first_block(const SkipRows& rows, float norm) const {
    __m512 least = _mm512_set1_ps(static_cast<float>(block_rows));
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const __m512 need = distance_needed(rows, half, norm, log_count_before_, plan_.before);
      least = _mm512_mask_min_ps(least, lane_mask(rows.rows, half), least, _mm512_sub_ps(row_numbers(half), need));
    }
    // Keys before position + least are far enough from every row.
    const int64_t key = rows.position + static_cast<int64_t>(std::floor(_mm512_reduce_min_ps(least)));
    return key < 0 ? 0 : key / block_rows;
  }

  /// The end of the key blocks that matter, given a bound on the norms of the keys after.
  int64_t last_block(const SkipRows& rows, float norm) const {
    __m512 most = _mm512_setzero_ps();
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const __m512 need = distance_needed(rows, half, norm, log_count_after_, plan_.after);
      most = _mm512_mask_max_ps(most, lane_mask(rows.rows, half), most, _mm512_add_ps(row_numbers(half), need));
    }
    const int64_t key = rows.position + static_cast<int64_t>(std::ceil(_mm512_reduce_max_ps(most)));
    return (key + block_rows - 1) / block_rows;
  }

 private:
  float log_count(float slope) const {
    return static_cast<float>(std::log2(weight_bound(static_cast<double>(slope) * std::numbers::ln2, plan_.keys)));
  }

  static __m512 row_numbers(int64_t first) {
    const __m512 lane = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(lane, _mm512_set1_ps(static_cast<float>(first)));
  }

  /// Within [0, 2^32]; the latter, farther than any key, where nothing may be skipped. Every rounding is on the safe
  /// side.
  __m512 distance_needed(const SkipRows& rows, int64_t half, float norm, float log_count, float slope) const {
    constexpr float never = 0x1p32f;
    const __m512 norms = _mm512_load_ps(rows.norms + half), max = _mm512_load_ps(rows.maxima + half);
    const __m512 reach = _mm512_mul_ps(norms, _mm512_set1_ps(std::fabs(plan_.factor) * norm));
    const __m512 sum = log2_of(_mm512_load_ps(rows.sums + half));
    const __m512 owed = _mm512_sub_ps(_mm512_add_ps(reach, _mm512_set1_ps(log_count)),
                                      _mm512_add_ps(_mm512_add_ps(sum, max), _mm512_set1_ps(log_budget_)));
    // Rounding of the scores and of this bound; of weights to bfloat16, by which kept and skipped ones may differ by
    // log2((1 + 2^-8) / (1 - 2^-8)) = 0.0113; and of sums of weights, 256 to an addition.
    const float fixed = 0x1p-6f + static_cast<float>(plan_.keys) * 0x1p-31f;
    const __m512 slack =
        _mm512_fmadd_ps(_mm512_add_ps(reach, _mm512_abs_ps(max)), _mm512_set1_ps(0x1p-12f), _mm512_set1_ps(fixed));
    const __m512 total = _mm512_add_ps(owed, slack);
    // One more than needed, since positions and distances are rounded too. What a slope of 0 does not do at once it
    // never does.
    constexpr float most = std::numeric_limits<float>::max();
    const float inverse = 1 / slope < most ? 1 / slope : most;
    // max and min give their second operand for NaN.
    __m512 need = _mm512_fmadd_ps(total, _mm512_set1_ps(inverse), _mm512_set1_ps(1.0f));
    need = _mm512_max_ps(_mm512_setzero_ps(), need);
    need = _mm512_fmadd_ps(need, _mm512_set1_ps(0x1p-20f), need);
    return _mm512_min_ps(need, _mm512_set1_ps(never));
  }

  const HeadPlan& plan_;
  bool active_;
  float log_budget_;
  float log_count_before_ = 0, log_count_after_ = 0;
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
