// Scores of a block of queries against a block of keys, in units of log2: scale q k' log2(e) + bias log2(e).
// A tile is stored [key][query lane], so that each lane is a row of the attention matrix.

#if defined(ALIBI_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_SCORES_INL_H_
#undef ALIBI_ATTENTION_SCORES_INL_H_
#else
#define ALIBI_ATTENTION_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>
#include <numbers>

#include "attention/dropout.h"
#include "attention/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// The bias of every distance in a tile. Bias and visibility depend on the distance alone, and the distances of a tile
/// are few: query lane x and key y (of the tile) lie at distance first + x + (key_rows - 1) - y.
struct Ramp {
  static constexpr int64_t size = query_rows + key_rows;
  HWY_ALIGN float values[size];  ///< log2 units; -infinity where the key is not seen
  int64_t first = 0;             ///< distance of values[0]
  bool masked = false;           ///< some distance is not seen

  /// Biases of key y for the lanes from `lane` on.
  HWY_INLINE Float At(int64_t lane, int64_t y) const { return hn::LoadU(Floats(), values + lane + (key_rows - 1) - y); }
};

inline void FillRamp(const QueryBlock& block, int64_t key, Ramp& ramp) {
  const Floats f;
  const Ints i;
  constexpr float log2e = std::numbers::log2e_v<float>;
  const HeadBias& bias = block.bias;
  ramp.first = block.position - key - (key_rows - 1);
  const int64_t last = ramp.first + Ramp::size - 2;
  ramp.masked = ramp.first < bias.least || last > bias.most;
  if (bias.table != nullptr) {
    const bool far = ramp.first >= bias.table_reach || last <= -bias.table_reach;
    const float edge = bias.at(ramp.first);
    for (int64_t r = 0; r < Ramp::size; ++r) ramp.values[r] = log2e * (far ? edge : bias.at(ramp.first + r));
  } else {
    // Counted from the nearest key, distances on the side in question fit 32 bits (see make_problem's limits).
    const auto before = hn::Set(i, static_cast<int32_t>(ramp.first - block.nearest));
    const auto after = hn::Set(i, static_cast<int32_t>(-ramp.first - block.nearest));
    const auto zero = hn::Set(i, static_cast<int32_t>(std::clamp<int64_t>(-ramp.first, -1, Ramp::size)));
    const Float slope_before = hn::Set(f, -bias.slope_before * log2e);
    const Float slope_after = hn::Set(f, -bias.slope_after * log2e);
    for (int64_t r = 0; r < Ramp::size; r += lanes) {
      const auto index = hn::Iota(i, static_cast<int32_t>(r));
      const Float b = hn::Mul(slope_before, hn::ConvertTo(f, hn::Add(before, index)));
      const Float a = hn::Mul(slope_after, hn::ConvertTo(f, hn::Sub(after, index)));
      const Float side = hn::IfThenElse(hn::RebindMask(f, hn::Gt(index, zero)), b, a);
      hn::Store(hn::IfThenZeroElse(hn::RebindMask(f, hn::Eq(index, zero)), side), f, ramp.values + r);
    }
  }
  if (!ramp.masked) return;
  const auto least = hn::Set(i, static_cast<int32_t>(std::clamp<int64_t>(bias.least - ramp.first, -1, Ramp::size)));
  const auto most = hn::Set(i, static_cast<int32_t>(std::clamp<int64_t>(bias.most - ramp.first, -1, Ramp::size)));
  const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < Ramp::size; r += lanes) {
    const auto index = hn::Iota(i, static_cast<int32_t>(r));
    const auto outside = hn::Or(hn::Lt(index, least), hn::Gt(index, most));
    const Float value = hn::Load(f, ramp.values + r);
    hn::Store(hn::IfThenElse(hn::RebindMask(f, outside), unseen, value), f, ramp.values + r);
  }
}

/// Finishes q k' into scores. Masked: keys that are not seen score -infinity whatever they hold.
template <bool masked>
struct StoreScores {
  float* scores;
  const Ramp* ramp;
  float scale;
  int64_t row0 = 0, column0 = 0;

  HWY_INLINE StoreScores At(int64_t row, int64_t column) const { return {scores, ramp, scale, row, column}; }
  HWY_INLINE void operator()(int64_t r, int64_t c, Float product) const {
    const Floats f;
    const int64_t row = row0 + r, column = column0 + c;
    const Float bias = ramp->At(column, row);
    Float score = hn::MulAdd(product, hn::Set(f, scale), bias);
    if (masked) {
      const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
      score = hn::IfThenElse(hn::Eq(bias, unseen), unseen, score);
    }
    hn::Store(score, f, scores + row * query_rows + column);
  }
};

/// scores[key][lane]; queries is [head_dim][query_rows], keys [key_rows][stride].
inline void Scores(const Problem& problem, const QueryBlock& block, const float* queries, const float* keys,
                   int64_t stride, int64_t count, const Ramp& ramp, float* scores) {
  const float scale = problem.scale * std::numbers::log2e_v<float>;
  if (ramp.masked) {
    Product<Left::rows>(keys, stride, queries, query_rows, count, block.rows, problem.head_dim,
                        StoreScores<true>{scores, &ramp, scale});
  } else {
    Product<Left::rows>(keys, stride, queries, query_rows, count, block.rows, problem.head_dim,
                        StoreScores<false>{scores, &ramp, scale});
  }
}

/// The vector form of DropoutMask::bits: true where a weight is dropped.
HWY_INLINE auto Dropped(const uint32_t* query_keys, uint32_t key_key, uint32_t threshold) {
  const Words w;
  auto x = hn::Add(hn::LoadU(w, query_keys), hn::Set(w, key_key));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(w, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(w, 0x846ca68bu));
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  return hn::RebindMask(Floats(), hn::Lt(x, hn::Set(w, threshold)));
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
