// Per-target reading of blocks of quantized weights (core/blocks.h). Include after hwy/foreach_target.h.
#if defined(ALIBI_NN_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_NN_BLOCKS_INL_H_
#undef ALIBI_NN_BLOCKS_INL_H_
#else
#define ALIBI_NN_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "core/blocks.h"
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

template <class T>
constexpr bool is_block = requires {
  T::size;
};

constexpr auto block_lanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
static_assert(block_lanes <= 16, "a vector has numbers of one scale");

using Ints = hn::Rebind<int32_t, Floats>;
using I = hn::Vec<Ints>;
HWY_INLINE I load_bytes(const uint8_t* p) { return hn::PromoteTo(Ints(), hn::LoadU(hn::Rebind<uint8_t, Floats>(), p)); }
/// A float16 in all lanes.
HWY_INLINE V half(float16 value) { return core::HWY_NAMESPACE::set_float16(Floats(), value.bits); }

/// scale * quant - minimum, for quants of four bits. The product has at most 24 bits, so that there is one rounding.
struct FourBits {
  FourBits(V scale_in, V minimum_in) : scale(scale_in), minimum(minimum_in) {
    if constexpr (block_lanes == 16) table = hn::MulSub(scale, hn::Iota(Floats(), 0), minimum);
  }
  V operator()(I quants) const {
    if constexpr (block_lanes == 16) return hn::TableLookupLanes(table, hn::IndicesFromVec(Floats(), quants));
    return hn::MulSub(scale, hn::ConvertTo(Floats(), quants), minimum);
  }
  V scale, minimum, table = scale;
};

/// The numbers of `Bytes` bytes: those of the low halves, then those of the high halves. They begin with number n.
template <int64_t Bytes, class Use>
HWY_INLINE void each_of_halves(const uint8_t* bytes, const FourBits& low, const FourBits& high, int64_t n,
                               const Use& use) {
  I both[Bytes / block_lanes];
  HWY_UNROLL(8)
  for (int64_t i = 0; i < Bytes; i += block_lanes) {
    both[i / block_lanes] = load_bytes(bytes + i);
    use(n + i, low(hn::And(both[i / block_lanes], hn::Set(Ints(), 15))));
  }
  HWY_UNROLL(8)
  for (int64_t i = 0; i < Bytes; i += block_lanes) use(n + Bytes + i, high(hn::ShiftRight<4>(both[i / block_lanes])));
}

/// bytes = the six-bit scales of a block's eight groups, then their minimums.
HWY_INLINE void unpack_scales(const uint8_t* packed, uint8_t (&bytes)[16]) {
  uint32_t words[3], unpacked[4];
  std::memcpy(words, packed, sizeof words);
  unpacked[0] = words[0] & 0x3f3f3f3f;
  unpacked[1] = (words[2] & 0x0f0f0f0f) | (words[0] >> 2 & 0x30303030);
  unpacked[2] = words[1] & 0x3f3f3f3f;
  unpacked[3] = (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 2 & 0x30303030);
  std::memcpy(bytes, unpacked, sizeof bytes);
}

/// to = scales * bytes, for eight of each.
HWY_INLINE void store_scales(const uint8_t* bytes, const float* scales, float* to) {
  const hn::CappedTag<float, 8> floats;
  for (size_t i = 0; i < 8; i += hn::MaxLanes(floats)) {
    const auto numbers = hn::PromoteTo(hn::Rebind<int32_t, decltype(floats)>(),
                                       hn::LoadU(hn::Rebind<uint8_t, decltype(floats)>(), bytes + i));
    hn::StoreU(hn::Mul(hn::LoadU(floats, scales + i), hn::ConvertTo(floats, numbers)), floats, to + i);
  }
}

/// The scales of a block's eight groups, then their minimums, all multiplied by those of the block.
struct GroupScales {
  template <class Block>
  explicit GroupScales(const Block& block) : GroupScales(block.scales, block.scale, block.minimum) {}
  GroupScales(const uint8_t* packed, float16 scale, float16 minimum) {
    uint8_t bytes[16];
    unpack_scales(packed, bytes);
    HWY_ALIGN float of_block[2][8];
    std::fill_n(of_block[0], 8, hn::GetLane(half(scale)));
    std::fill_n(of_block[1], 8, hn::GetLane(half(minimum)));
    for (int which : {0, 1}) store_scales(bytes + 8 * which, of_block[which], values + 8 * which);
  }
  V scale(int64_t group) const { return set(values[group]); }
  V minimum(int64_t group) const { return set(values[8 + group]); }

  alignas(64) float values[16];
};

/// Calls use(n, w) for vectors w of a block's numbers, from number n on, in their order. Of the types with minimums a
/// number is rounded once, of the others float32 holds it exactly.
template <class Use>
HWY_INLINE void each_weight(const q8_block& block, const Use& use) {
  const V scale = half(block.scale);
  HWY_UNROLL(8)
  for (int64_t n = 0; n < q8_block::size; n += block_lanes) use(n, hn::Mul(scale, load_quants(block.values + n)));
}

template <class Use>
HWY_INLINE void each_weight(const core::q4_block& block, const Use& use) {
  const V scale = half(block.scale);
  const FourBits numbers(scale, hn::Mul(scale, set(8)));
  each_of_halves<16>(block.quants, numbers, numbers, 0, use);
}

/// The 64 numbers of groups `group` and group + 1.
template <class Use>
HWY_INLINE void each_weight_of(const core::q4_k_block& block, const GroupScales& scales, int64_t group,
                               const Use& use) {
  const FourBits low(scales.scale(group), scales.minimum(group));
  const FourBits high(scales.scale(group + 1), scales.minimum(group + 1));
  each_of_halves<32>(block.quants + 16 * group, low, high, 32 * group, use);
}
template <class Use>
HWY_INLINE void each_weight(const core::q4_k_block& block, const Use& use) {
  const GroupScales scales(block);
  for (int64_t group = 0; group < 8; group += 2) each_weight_of(block, scales, group, use);
}

template <class Use>
HWY_INLINE void each_weight(const core::q5_k_block& block, const Use& use) {
  const GroupScales scales(block);
  constexpr int64_t vectors = 32 / block_lanes;
  I fifth[vectors];
  for (int64_t i = 0; i < vectors; ++i) fifth[i] = load_bytes(block.fifth_bits + i * block_lanes);
  for (int64_t group = 0; group < 8; ++group) {
    const V scale = scales.scale(group), minimum = scales.minimum(group);
    HWY_UNROLL(8)
    for (int64_t i = 0; i < vectors; ++i) {
      const I both = load_bytes(block.quants + group / 2 * 32 + i * block_lanes);
      const I four = group % 2 == 0 ? hn::And(both, hn::Set(Ints(), 15)) : hn::ShiftRight<4>(both);
      const I quants = hn::Or(four, hn::ShiftLeft<4>(hn::And(fifth[i], hn::Set(Ints(), 1))));
      fifth[i] = hn::ShiftRight<1>(fifth[i]);
      use(32 * group + i * block_lanes, hn::MulSub(scale, hn::ConvertTo(Floats(), quants), minimum));
    }
  }
}

template <class Use>
HWY_INLINE void each_weight(const core::q6_k_block& block, const Use& use) {
  const V of_block = half(block.scale);
  constexpr int64_t vectors = 32 / block_lanes;
  for (int64_t part = 0; part < 2; ++part) {
    I high[vectors];
    for (int64_t i = 0; i < vectors; ++i) high[i] = load_bytes(block.high_bits + 32 * part + i * block_lanes);
    for (int64_t row = 0; row < 4; ++row) {
      HWY_UNROLL(8)
      for (int64_t i = 0; i < vectors; ++i) {
        const int64_t column = i * block_lanes, n = 128 * part + 32 * row + column;
        const I both = load_bytes(block.low_bits + 64 * part + 32 * (row % 2) + column);
        const I low = row < 2 ? hn::And(both, hn::Set(Ints(), 15)) : hn::ShiftRight<4>(both);
        const I quants = hn::Or(low, hn::ShiftLeft<4>(hn::And(high[i], hn::Set(Ints(), 3))));
        high[i] = hn::ShiftRight<2>(high[i]);
        const V scale = hn::Mul(of_block, set(block.scales[n / 16]));
        use(n, hn::Mul(scale, hn::ConvertTo(Floats(), hn::Sub(quants, hn::Set(Ints(), 32)))));
      }
    }
  }
}

/// y = the numbers of a block.
template <class Block>
HWY_INLINE void widen_block(const Block& block, float* y) {
  each_weight(block, [&](int64_t n, V w) HWY_ATTR { hn::StoreU(w, Floats(), y + n); });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();
#endif
