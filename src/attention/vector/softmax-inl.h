// The online softmax of a tile of scores, which is stored as [key][query lane] in units of log2 (Milakov & Gimelshein
// 2018).

#if defined(ALIBI_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_SOFTMAX_INL_H_
#undef ALIBI_ATTENTION_SOFTMAX_INL_H_
#else
#define ALIBI_ATTENTION_SOFTMAX_INL_H_
#endif

#include <limits>

#include "attention/vector/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// Updates the maximum of each lane and computes the factor that rescales the sums to it. Returns whether any factor
/// differs from 1.
inline bool raise_max(const float* scores, const SeenKeys& seen, float* max, float* factor) {
  const Floats f;
  bool raised = false;
  for_groups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.keys_of(n * lanes, width * lanes);
    for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
      const Float old = hn::Load(f, max + c);
      constexpr int64_t parts = 4;  // number of independent maxima
      Float tops[parts] = {old, old, old, old};
      int64_t y = keys.begin;
      const auto take = [&](Float& top, int64_t at)
                            HWY_ATTR { top = hn::Max(hn::Load(f, scores + at * query_rows + c), top); };
      for (; y + parts <= keys.end; y += parts) {
        HWY_UNROLL(4)
        for (int64_t part = 0; part < parts; ++part) take(tops[part], y + part);
      }
      for (; y < keys.end; ++y) take(tops[0], y);
      const Float top = hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]));
      const auto none = hn::Eq(top, hn::Set(f, -std::numeric_limits<float>::infinity()));
      const Float alpha = hn::IfThenElse(none, hn::Set(f, 1.0f), exp2_of(hn::Sub(old, top)));
      raised |= !hn::AllTrue(f, hn::Eq(old, top));
      hn::Store(top, f, max + c);
      hn::Store(alpha, f, factor + c);
    }
  });
  return raised;
}

/// Replaces scores by weights exp2(score - max) and adds these to `sums`; `lows` are the rounding errors of the sums.
inline void make_weights(float* scores, const SeenKeys& seen, const float* factor, const float* max, float* sums,
                         float* lows) {
  const Floats f;
  for_groups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.keys_of(n * lanes, width * lanes);
    zero_unseen(scores, n * lanes, width * lanes, keys, seen.keys);
    for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
      const Float top = hn::Load(f, max + c);
      const auto none = hn::Eq(top, hn::Set(f, -std::numeric_limits<float>::infinity()));
      const Float shift = hn::IfThenZeroElse(none, top);
      Float sum = hn::Zero(f);
      for (int64_t y = keys.begin; y < keys.end; ++y) {
        float* at = scores + y * query_rows + c;
        const Float weight = exp2_of(hn::Sub(hn::Load(f, at), shift));
        sum = hn::Add(sum, weight);
        hn::Store(weight, f, at);
      }
      // Two-sum, because the running sum must stay exact over a million keys.
      const Float alpha = hn::Load(f, factor + c);
      const Float old = hn::Mul(hn::Load(f, sums + c), alpha);
      const Float total = hn::Add(old, sum);
      const Float part = hn::Sub(total, old);
      const Float lost = hn::Add(hn::Sub(old, hn::Sub(total, part)), hn::Sub(sum, part));
      hn::Store(total, f, sums + c);
      hn::Store(hn::MulAdd(hn::Load(f, lows + c), alpha, lost), f, lows + c);
    }
  });
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
