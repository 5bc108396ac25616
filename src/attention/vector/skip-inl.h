// The skip rule (skip/rule.h) in float32. Rounding never skips a key that matters: norms are rounded up, the exponent
// has slack for its own rounding and that of the scores, the budget has slack for errors that do not grow with the
// scores, and nothing is skipped if a value is NaN or infinite.

#if defined(ALIBI_ATTENTION_SKIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_SKIP_INL_H_
#undef ALIBI_ATTENTION_SKIP_INL_H_
#else
#define ALIBI_ATTENTION_SKIP_INL_H_
#endif

#include <cmath>
#include <limits>
#include <numbers>

#include "attention/skip/rule.h"
#include "attention/skip/weights.h"
#include "attention/vector/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// Upper bound of the norm of a row of `size` floats (a multiple of 16, padded with zeros), minus `centre` if it is
/// given.
inline float norm_bound(const float* row, int64_t size, const float* centre = nullptr) {
  const Floats f;
  Float sum = hn::Zero(f);
  for (int64_t i = 0; i < size; i += lanes) {
    Float value = hn::LoadU(f, row + i);
    if (centre != nullptr) value = hn::Sub(value, hn::LoadU(f, centre + i));
    sum = hn::MulAdd(value, value, sum);
  }
  constexpr float relative = 1.0f + 0x1p-16f;  // the relative error of sum and root is less: size / 2 + 2 roundings
  constexpr float flushed = 0x1p-125f;         // squares below 2^-126 are flushed to zero
  const float squares = hn::GetLane(hn::SumOfLanes(f, sum)) + static_cast<float>(size) * flushed;
  if (!(squares <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::infinity();
  return std::sqrt(squares) * relative;
}

/// scale * log2(e) * a b' of two rows of `size` floats (a multiple of 16, padded with zeros).
inline float scaled_product(const Problem& problem, const float* a, const float* b, int64_t size) {
  const Floats f;
  Float sum = hn::Zero(f);
  for (int64_t i = 0; i < size; i += lanes) sum = hn::MulAdd(hn::Load(f, a + i), hn::LoadU(f, b + i), sum);
  return problem.scale * std::numbers::log2e_v<float> * hn::GetLane(hn::SumOfLanes(f, sum));
}

#include "attention/skip/bound-inl.h"

struct VectorMath {
  static Float set(double x) { return hn::Set(Floats(), static_cast<float>(x)); }
  static Float add(Float a, Float b) { return hn::Add(a, b); }
  static Float sub(Float a, Float b) { return hn::Sub(a, b); }
  static Float mul_add(Float a, Float b, Float c) { return hn::MulAdd(a, b, c); }
  static Float abs(Float a) { return hn::Abs(a); }
  static Float min(Float a, Float b) { return hn::Min(a, b); }
  static Float max(Float a, Float b) { return hn::Max(a, b); }
  static Float cap(Float x, double c, Float more) {
    return hn::MulAdd(hn::Tanh(Floats(), hn::Div(x, set(c))), set(c), more);
  }
};

/// The data of a block's rows that the rule needs: their queries and their softmax state.
struct RunningRows {
  const float* norms;     ///< upper bounds of |q|
  const float* products;  ///< product of q and the centre of the keys, as a score
  const float* shares;    ///< position of |q| on the chord
  const float* max;
  const float* sum;
  const float* sum_low;  ///< rounding error of sum
};

/// The bound of keys whose weights are bounded by a chord.
inline RemainingKeys remaining_keys(const Problem& problem, const Chord& weights, float biases, float radius,
                                    float norm) {
  const float unit = std::abs(problem.scale) * std::numbers::log2e_v<float>;
  return {.score_per_norm = static_cast<double>(unit * norm),
          .radius_per_norm = static_cast<double>(unit * radius),
          .biases = static_cast<double>(biases),
          .summed = true,
          .low = static_cast<double>(weights.low),
          .rise = static_cast<double>(weights.rise)};
}

/// Whether the weight of the remaining keys is at most the budget times the sum, for each of `count` rows. `beyond` has
/// their largest biases, for whole vectors of rows.
inline bool negligible(const Problem& problem, int64_t count, const RemainingKeys& keys, const float* beyond,
                       const RunningRows& rows) {
  const Floats f;
  const Roundings roundings = Roundings::of_vector(problem);
  const Float budget = hn::Set(f, skip_budget(problem));
  for (int64_t c = 0; c < count; c += lanes) {
    const SkipRow<Float> row = {.norm = hn::Load(f, rows.norms + c),
                                .product = hn::Load(f, rows.products + c),
                                .share = hn::Load(f, rows.shares + c),
                                .top = hn::Load(f, rows.max + c)};
    const Float exponent = SkipBound::log2_weight(VectorMath(), row, keys, hn::Load(f, beyond + c), roundings);
    const Float sum = hn::Add(hn::Load(f, rows.sum + c), hn::Load(f, rows.sum_low + c));
    // Min returns its second operand for NaN. That is a bound that skips nothing.
    const Float bound = exp2_of(hn::Min(exponent, hn::Set(f, 100.0f)));
    const auto small = hn::Le(bound, hn::Mul(budget, sum));
    const auto padding = hn::Ge(hn::Iota(f, static_cast<float>(c)), hn::Set(f, static_cast<float>(count)));
    if (!hn::AllTrue(f, hn::Or(small, padding))) return false;
  }
  return true;
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
