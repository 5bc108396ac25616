// The arithmetic of the skip rule (skip.h). Rounding never skips a key that matters: norms are rounded up, the exponent
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

#include "attention/skip_weights.h"
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

/// The remaining keys on one side of a query block.
struct Remaining {
  Chord weights;         ///< bound of their weight for a query, without its product with their centre
  float biases = 0;      ///< bound of the weight that they would have with scores of 0
  float radius = 0;      ///< bound of their distance from the centre
  float norm = 0;        ///< bound of their norms plus the norm of the centre
  float slope = 0;       ///< slope on that side
  int64_t distance = 0;  ///< distance to the block's nearest row, counted as for its linear bias
  int step = 0;          ///< change of the distance from one row to the next; 0 if no row has a smaller distance
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

/// The bound of the weight of the remaining keys with a softcap c. With f(x) = c tanh(x / c) and a score of at most u
/// before the cap, every capped score is at most f(u), and at most max(u, 0). So the keys weigh at most f(u) plus the
/// weight of their biases, for the largest u, and at most the sum of their weight without the cap and that of their
/// biases.
HWY_INLINE Float capped_weights(const Problem& problem, const Remaining& remaining, Float weights, Float largest) {
  const Floats f;
  const Float cap = hn::Set(f, problem.softcap * std::numbers::log2e_v<float>), biases = hn::Set(f, remaining.biases);
  const Float of_largest = hn::MulAdd(hn::Tanh(f, hn::Div(largest, cap)), cap, biases);
  const Float of_sum = hn::Add(hn::Max(weights, biases), hn::Set(f, 1.0f));  // log2(2^a + 2^b) <= max(a, b) + 1
  return hn::Min(of_largest, of_sum);
}

/// Whether the weight of the remaining keys is at most the budget times the sum, for each row of a block.
inline bool negligible(const Problem& problem, const QueryBlock& block, const Remaining& remaining,
                       const RunningRows& rows) {
  const Floats f;
  const Ints i;
  constexpr float log2e = std::numbers::log2e_v<float>;
  const Float low = hn::Set(f, remaining.weights.low), rise = hn::Set(f, remaining.weights.rise);
  const Float low_magnitude = hn::Abs(low);
  const Float score_per_norm = hn::Set(f, std::abs(problem.scale) * log2e * remaining.norm);
  const Float slope2 = hn::Set(f, remaining.slope * log2e);
  constexpr float of_tanh = 0x1p-19f;  // relative error of tanh in a score and in its bound
  const Float slack =
      hn::Set(f, 0x1p-20f + static_cast<float>(problem.head_dim) * 0x1p-23f + (problem.softcap > 0 ? of_tanh : 0.0f));
  const Float radius_per_norm = hn::Set(f, std::abs(problem.scale) * log2e * remaining.radius);
  // Error of products that were flushed to zero because they are denormal.
  const Float flushed =
      hn::Set(f, std::abs(problem.scale) * log2e * 0x1p-100f * (static_cast<float>(problem.head_dim) * 0x1p-25f));
  const Float budget = hn::Set(f, skip_budget(problem));
  for (int64_t c = 0; c < block.rows; c += lanes) {
    const auto lane = hn::Iota(i, static_cast<int32_t>(c));
    const auto first = hn::Set(i, static_cast<int32_t>(remaining.distance));
    const Float distance = hn::ConvertTo(f, hn::Add(first, hn::Mul(lane, hn::Set(i, remaining.step))));
    const Float top = hn::Load(f, rows.max + c);
    const Float sum = hn::Add(hn::Load(f, rows.sum + c), hn::Load(f, rows.sum_low + c));
    const Float weights = hn::MulAdd(hn::Load(f, rows.shares + c), rise, low);
    const Float score = hn::MulAdd(score_per_norm, hn::Load(f, rows.norms + c), flushed);  // largest score
    const Float penalty = hn::Mul(slope2, distance);
    const Float magnitude = hn::Add(hn::Add(score, penalty), hn::Add(hn::Abs(top), low_magnitude));
    const Float product = hn::Load(f, rows.products + c);
    Float weight = hn::Add(product, weights);
    if (problem.softcap > 0) {
      const Float centred = hn::MulAdd(radius_per_norm, hn::Load(f, rows.norms + c), product);
      weight = capped_weights(problem, remaining, weight, hn::Min(centred, score));
    }
    Float exponent = hn::Sub(weight, hn::Add(penalty, top));
    exponent = hn::MulAdd(magnitude, slack, hn::Add(exponent, flushed));
    // Min returns its second operand for NaN. That is a bound that skips nothing.
    const Float bound = exp2_of(hn::Min(exponent, hn::Set(f, 100.0f)));
    const auto small = hn::Le(bound, hn::Mul(budget, sum));
    const auto padding = hn::RebindMask(f, hn::Gt(lane, hn::Set(i, static_cast<int32_t>(block.rows - 1))));
    if (!hn::AllTrue(f, hn::Or(small, padding))) return false;
  }
  return true;
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
