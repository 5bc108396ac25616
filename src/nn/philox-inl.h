// core/random.h's Philox4x32-10, one counter per lane, and dropout with it. Include after hwy/foreach_target.h.
#if defined(ALIBI_NN_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_NN_PHILOX_INL_H_
#undef ALIBI_NN_PHILOX_INL_H_
#else
#define ALIBI_NN_PHILOX_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "nn/kernel_args.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<uint32_t>;

/// Lane i of word j is Random::block(counter + i)[j].
struct PhiloxBlocks {
  hn::Vec<Words> word0, word1, word2, word3;
};

struct HighAndLow {
  hn::Vec<Words> high, low;
};

/// The 64-bit products of all lanes with a constant.
HWY_INLINE HighAndLow multiply(hn::Vec<Words> a, hn::Vec<Words> b) {
#if HWY_TARGET == HWY_SCALAR  // a single lane has no odd neighbour
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(b);
  return {hn::Set(Words(), static_cast<uint32_t>(product >> 32)), hn::Set(Words(), static_cast<uint32_t>(product))};
#else
  const Words d;
  const hn::RepartitionToWide<Words> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
#endif
}

/// `counter` is a multiple of the number of lanes, so that its low half does not wrap within a vector.
HWY_INLINE PhiloxBlocks philox(uint64_t seed, uint64_t stream, uint64_t counter) {
  const Words d;
  auto c0 = hn::Iota(d, static_cast<uint32_t>(counter));
  auto c1 = hn::Set(d, static_cast<uint32_t>(counter >> 32));
  auto c2 = hn::Set(d, static_cast<uint32_t>(stream));
  auto c3 = hn::Set(d, static_cast<uint32_t>(stream >> 32));
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const HighAndLow p0 = multiply(c0, m0), p1 = multiply(c2, m1);
    c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
    c1 = p1.low;
    c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Factors of dropout for elements [first, first + count): 0, or the factor if random.uniform(i) >= probability, which
/// means that the upper 24 bits of word i are not below the threshold.
HWY_INLINE void dropout_factors(const Dropout& dropout, int64_t first, int64_t count, float* factors) {
  const hn::ScalableTag<float> floats;
  const Words words;
  const int64_t group = 4 * static_cast<int64_t>(hn::Lanes(words));
  const auto limit = hn::Set(words, dropout.threshold);
  const auto kept = hn::Set(floats, dropout.factor);
  const auto factor_of = [&](hn::Vec<Words> word) HWY_ATTR {
    return hn::IfThenElseZero(hn::RebindMask(floats, hn::Not(hn::Lt(hn::ShiftRight<8>(word), limit))), kept);
  };
  alignas(64) float part[4 * hn::MaxLanes(hn::ScalableTag<float>())];
  for (int64_t start = first / group * group; start < first + count; start += group) {
    const PhiloxBlocks blocks =
        philox(dropout.random.seed(), dropout.random.stream(), static_cast<uint64_t>(start) / 4);
    const int64_t from = start < first ? first - start : 0;
    const int64_t to = start + group > first + count ? first + count - start : group;
    const bool whole = from == 0 && to == group;
    float* out = whole ? factors + (start - first) : part;
    hn::StoreInterleaved4(factor_of(blocks.word0), factor_of(blocks.word1), factor_of(blocks.word2),
                          factor_of(blocks.word3), floats, out);
    if (!whole)
      std::memcpy(factors + (start + from - first), part + from, static_cast<size_t>(to - from) * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
