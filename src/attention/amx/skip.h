// The skip rule (skip/rule.h) for a block of 32 queries and the key blocks that it has not visited yet.
#pragma once

#include <cmath>
#include <numbers>

#include "attention/amx/plan.h"
#include "attention/amx/ramp.h"
#include "attention/amx/softmax.h"
#include "attention/skip/rule.h"
#include "attention/skip/weights.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {

#include "attention/skip/bound-inl.h"

struct LaneMath {
  struct Number {
    __m512 lanes;
  };
  static Number set(double x) { return {_mm512_set1_ps(static_cast<float>(x))}; }
  static Number add(Number a, Number b) { return {_mm512_add_ps(a.lanes, b.lanes)}; }
  static Number sub(Number a, Number b) { return {_mm512_sub_ps(a.lanes, b.lanes)}; }
  static Number mul_add(Number a, Number b, Number c) { return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
  static Number abs(Number a) { return {_mm512_abs_ps(a.lanes)}; }
  static Number min(Number a, Number b) { return {_mm512_min_ps(a.lanes, b.lanes)}; }
  static Number max(Number a, Number b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
  static Number cap(Number x, double, Number more) { return add(x, more); }  // there is no softcap
};

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
    roundings_ = Roundings::of_amx(plan.keys);
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

  /// least[32] = a lower bound of the score of the key at a row's position.
  void min_scores(const float* norms, const float* products, float longest_key, float* least) const {
    const __m512 bias = _mm512_set1_ps(plan_.bias->at(0) * std::numbers::log2e_v<float>);
    const __m512 reach = _mm512_set1_ps(-std::fabs(plan_.factor) * longest_key);
    const __m512 radius = _mm512_set1_ps(-std::fabs(plan_.factor) * keys_.radius_before[count()]);
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const __m512 norm = _mm512_load_ps(norms + half);
      const __m512 centred = _mm512_fmadd_ps(norm, radius, _mm512_load_ps(products + half));
      _mm512_store_ps(least + half, _mm512_add_ps(_mm512_max_ps(_mm512_mul_ps(norm, reach), centred), bias));
    }
  }

  /// Narrows the key blocks [low, left), which lie before the visited ones, and [right, high), which lie after them, to
  /// those that must be visited. `first`: nothing was visited before.
  void narrow(const SkipRows& rows, int64_t& low, int64_t left, int64_t right, int64_t& high, bool first) const {
    if (low >= left && right >= high) return;
    const Lanes limit = limit_of(rows);
    low += most_negligible(left - low, first, [&](int64_t blocks) {
      const int64_t end = low + blocks;
      return fits(rows, limit, Side::before, rows.position - (end * block_rows - 1),
                  keys_.chord_before(rows.levels, end), keys_.norm_before[end]);
    });
    high -= most_negligible(high - right, first, [&](int64_t blocks) {
      const int64_t begin = high - blocks;
      return fits(rows, limit, Side::after, begin * block_rows - rows.position, keys_.chord_from(rows.levels, begin),
                  keys_.norm_from[begin]);
    });
  }

 private:
  int64_t count() const { return (plan_.keys + block_rows - 1) / block_rows; }

  /// The largest of the numbers up to `count` for which negligible(number) holds, or 0. After the first search few
  /// blocks become negligible at a time, so a search begins with one.
  template <class Negligible>
  static int64_t most_negligible(int64_t count, bool first, const Negligible& negligible) {
    int64_t found = 0, too_many = count + 1;
    for (int64_t step = first && count > 1 ? count / 2 : 1; found + step < too_many; step *= 2) {
      if (negligible(found + step)) {
        found += step;
      } else {
        too_many = found + step;
      }
    }
    while (too_many - found > 1) {
      const int64_t middle = found + (too_many - found) / 2;
      (negligible(middle) ? found : too_many) = middle;
    }
    return found;
  }

  /// Adds the gates from a key to each row, which only causal attention has.
  void add_gates(int64_t position, int64_t key, float* beyond) const {
    const HeadDecay& decay = plan_.bias.decay;
    alignas(64) float gates[block_rows];
    gate_sums(decay, key, position, gates);
    const bool other_document = decay.document(position + block_rows - 1) > key;
    for (int64_t i = 0; i < block_rows; ++i) {
      beyond[i] += other_document && decay.document(position + i) > key ? -1e30f : gates[i];
    }
  }

  /// For each row, the logarithm of the weight that the remaining keys may have.
  Lanes limit_of(const SkipRows& rows) const {
    const __m512 budget = _mm512_set1_ps(log_budget_);
    const Lanes sums = load_lanes(rows.sums);
    return {_mm512_add_ps(log2_of(sums.low), budget), _mm512_add_ps(log2_of(sums.high), budget)};
  }

  /// Whether the weight of the remaining keys is within the limit for every row. `distance` is that of the nearest of
  /// them from the first row.
  bool fits(const SkipRows& rows, const Lanes& limit, Side side, int64_t distance, const Chord& weights,
            float norm) const {
    alignas(64) float beyond[block_rows];
    plan_.bias->beyond(side, distance, side == Side::before ? 1 : -1, block_rows, beyond);
    if (plan_.bias.decay) add_gates(rows.position, rows.position - distance, beyond);
    const RemainingKeys keys = {
        .score_per_norm = static_cast<double>(std::fabs(plan_.factor) * (norm + keys_.centre_norm)),
        .summed = true,
        .low = static_cast<double>(weights.low),
        .rise = static_cast<double>(weights.rise)};
    for (int64_t half = 0; half < block_rows; half += vector_floats) {
      const auto load = [&](const float* values) { return LaneMath::Number{_mm512_load_ps(values + half)}; };
      const SkipRow<LaneMath::Number> row = {load(rows.norms), load(rows.products), load(rows.shares),
                                             load(rows.maxima)};
      const __m512 weight = SkipBound::log2_weight(LaneMath(), row, keys, load(beyond), roundings_).lanes;
      const __mmask16 wanted = lane_mask(rows.rows, half);
      // The comparison is false for NaN.
      const __mmask16 small = _mm512_cmp_ps_mask(weight, half == 0 ? limit.low : limit.high, _CMP_LE_OQ);
      if ((small & wanted) != wanted) return false;
    }
    return true;
  }

  const HeadPlan& plan_;
  bool active_;
  WeightBounds::Head keys_;
  int64_t size_ = 0;
  float log_budget_ = 0;
  Roundings roundings_;
};

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
