// The skip rule's arithmetic (see skip.h). Every rounding is on the safe side: norms are rounded up, the exponent
// carries a slack for its own rounding and for that of the scores, the budget one for all that does not grow with them,
// and NaN or infinity never skips.

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

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// At least the norm of a row of `size` floats (a multiple of 16, padded with zeros), less a centre if there is one.
inline float norm_bound(const float* row, int64_t size, const float* centre = nullptr) {
  const Floats f;
  Float sum = hn::Zero(f);
  for (int64_t i = 0; i < size; i += lanes) {
    Float value = hn::LoadU(f, row + i);
    if (centre != nullptr) value = hn::Sub(value, hn::LoadU(f, centre + i));
    sum = hn::MulAdd(value, value, sum);
  }
  constexpr float relative = 1.0f + 0x1p-16f;  // sum and root err by less: size / 2 + 2 roundings
  constexpr float flushed = 0x1p-125f;         // a square below 2^-126 counted as zero
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
  Chord weights;         ///< bound on what they weigh for a query, but for its product with their centre
  float norm = 0;        ///< bound on their norms, and that of the centre
  float slope = 0;       ///< of that side
  int64_t distance = 0;  ///< least distance to the block's first row, as its linear bias counts it
  int step = 0;          ///< by which it changes from row to row; 0: no row's is less
};

/// What the rule knows of a block's rows: their queries, and their running softmax.
struct RunningRows {
  const float* norms;     ///< bounds on |q|
  const float* products;  ///< of q and the keys' centre, as scores
  const float* shares;    ///< where |q| lies on the chord
  const float* max;
  const float* sum;
  const float* sum_low;  ///< what rounding took from the sum
};

/// True if no row of a block can owe more than its budget's share of its sum to the remaining keys.
inline bool negligible(const Problem& problem, const QueryBlock& block, const Remaining& remaining,
                       const RunningRows& rows) {
  const Floats f;
  const Ints i;
  constexpr float log2e = std::numbers::log2e_v<float>;
  const Float low = hn::Set(f, remaining.weights.low), rise = hn::Set(f, remaining.weights.rise);
  const Float low_magnitude = hn::Abs(low);
  const Float reach = hn::Set(f, std::abs(problem.scale) * log2e * remaining.norm);
  const Float slope2 = hn::Set(f, remaining.slope * log2e);
  const Float slack = hn::Set(f, 0x1p-20f + static_cast<float>(problem.head_dim) * 0x1p-23f);
  // Sums of products that counted as zero where they were denormal.
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
    const Float score = hn::MulAdd(reach, hn::Load(f, rows.norms + c), flushed);  // the most that is rounded
    const Float penalty = hn::Mul(slope2, distance);
    const Float magnitude = hn::Add(hn::Add(score, penalty), hn::Add(hn::Abs(top), low_magnitude));
    Float exponent = hn::Sub(hn::Add(hn::Load(f, rows.products + c), weights), hn::Add(penalty, top));
    exponent = hn::MulAdd(magnitude, slack, hn::Add(exponent, flushed));
    // Min gives its second operand for NaN: far too large a bound.
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
