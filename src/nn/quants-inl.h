// Per-target reading of the quants of blocks as signed numbers, and of what multiplies their sums, for products in
// integers (integer_gemm.cc). Include after hwy/foreach_target.h.
#if defined(ALIBI_NN_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_NN_QUANTS_INL_H_
#undef ALIBI_NN_QUANTS_INL_H_
#else
#define ALIBI_NN_QUANTS_INL_H_
#endif

#include <type_traits>

#include "nn/blocks-inl.h"
#include "nn/rounded_rows.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

constexpr int64_t group = RoundedRows::block;
/// Groups whose factors are read together.
constexpr int64_t groups_at_once = 8;
template <class Block>
constexpr bool has_minimums = std::is_same_v<Block, core::q4_k_block> || std::is_same_v<Block, core::q5_k_block>;
/// Whether the two halves of a group have factors of their own, which are integers.
template <class Block>
constexpr bool has_halves = std::is_same_v<Block, core::q6_k_block>;

// The quants of group `index` of a block, as signed numbers.

using Bytes = hn::CappedTag<uint8_t, group>;
constexpr auto byte_lanes = static_cast<int64_t>(hn::MaxLanes(Bytes()));
using HalfBytes = hn::CappedTag<uint8_t, group / 2>;

/// to[i] = of(i) for vectors of a group's bytes from number i on.
template <class Of>
HWY_INLINE void each_bytes(int8_t* to, const Of& of) {
  for (int64_t i = 0; i < group; i += byte_lanes) {
    hn::StoreU(of(i), Bytes(), reinterpret_cast<uint8_t*>(to) + i);
  }
}
template <class Vector>
HWY_INLINE Vector half_of(Vector v, bool high) {
  return high ? hn::ShiftRight<4>(v) : hn::And(v, hn::Set(hn::DFromV<Vector>(), uint8_t{15}));
}
/// `value` in the lanes that have any of these bits.
HWY_INLINE hn::Vec<Bytes> if_bit(hn::Vec<Bytes> v, int bit, int value) {
  const auto wanted = hn::Set(Bytes(), static_cast<uint8_t>(bit));
  return hn::And(hn::VecFromMask(Bytes(), hn::Eq(hn::And(v, wanted), wanted)),
                 hn::Set(Bytes(), static_cast<uint8_t>(value)));
}

HWY_INLINE const int8_t* quants_of(const q8_block& block, int64_t, int8_t*) { return block.values; }
HWY_INLINE const int8_t* quants_of(const core::q4_block& block, int64_t, int8_t* memory) {
  const HalfBytes d;
  auto* const to = reinterpret_cast<uint8_t*>(memory);
  const auto quants = [&](int64_t i, bool high)
                          HWY_ATTR { return hn::Sub(half_of(hn::LoadU(d, block.quants + i), high), hn::Set(d, 8)); };
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::StoreU(hn::Combine(Bytes(), quants(0, true), quants(0, false)), Bytes(), to);  // it is loaded as one
#else
  for (int64_t i = 0; i < group / 2; i += static_cast<int64_t>(hn::MaxLanes(d))) {
    hn::StoreU(quants(i, false), d, to + i);
    hn::StoreU(quants(i, true), d, to + group / 2 + i);
  }
#endif
  return memory;
}
HWY_INLINE const int8_t* quants_of(const core::q4_k_block& block, int64_t index, int8_t* memory) {
  const uint8_t* const at = block.quants + index / 2 * 32;
  each_bytes(memory, [&](int64_t i) HWY_ATTR { return half_of(hn::LoadU(Bytes(), at + i), index % 2 == 1); });
  return memory;
}
HWY_INLINE const int8_t* quants_of(const core::q5_k_block& block, int64_t index, int8_t* memory) {
  const uint8_t* const at = block.quants + index / 2 * 32;
  each_bytes(memory, [&](int64_t i) HWY_ATTR {
    return hn::Or(half_of(hn::LoadU(Bytes(), at + i), index % 2 == 1),
                  if_bit(hn::LoadU(Bytes(), block.fifth_bits + i), 1 << index, 16));
  });
  return memory;
}
HWY_INLINE const int8_t* quants_of(const core::q6_k_block& block, int64_t index, int8_t* memory) {
  const int64_t part = index / 4, row = index % 4;
  const uint8_t* const low = block.low_bits + 64 * part + 32 * (row % 2);
  const uint8_t* const high = block.high_bits + 32 * part;
  each_bytes(memory, [&](int64_t i) HWY_ATTR {
    const auto bits = hn::LoadU(Bytes(), high + i);
    const auto top = hn::Or(if_bit(bits, 1 << 2 * row, 16), if_bit(bits, 2 << 2 * row, 32));
    return hn::Sub(hn::Or(half_of(hn::LoadU(Bytes(), low + i), row >= 2), top), hn::Set(Bytes(), uint8_t{32}));
  });
  return memory;
}

/// What multiplies the sums of some groups of `Columns` columns.
template <int64_t Columns>
struct Factors {
  HWY_ALIGN float scales[groups_at_once][Columns];
  HWY_ALIGN float minimums[groups_at_once][Columns];
};

/// Element of a row that has group `index`, and the group's index in it.
template <class Block>
HWY_INLINE const Block& block_at(const Block* row, int64_t index) {
  return row[index * group / Block::size];
}
template <class Block>
constexpr int64_t within(int64_t index) {
  return index % (Block::size / group);
}

/// Reads the factors of `count` groups from `first` on, of eight columns from j on, for types with minimums.
template <int64_t Columns, class RowOf>
HWY_INLINE void read_group_scales(const RowOf& row_of, int64_t j, int64_t first, int64_t count, Factors<Columns>& to) {
  float16 halves[2][8];
  uint8_t of_columns[8][16], of_groups[16][8];
  for (int64_t i = 0; i < 8; ++i) {
    const auto& block = block_at(row_of(j + i), first);
    unpack_scales(block.scales, of_columns[i]);
    halves[0][i] = block.scale;
    halves[1][i] = block.minimum;
  }
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t g = 0; g < 16; ++g) of_groups[g][i] = of_columns[i][g];
  }
#else
  const HalfBytes d;
  hn::Vec<HalfBytes> bytes[8], next[8];
  for (int64_t i = 0; i < 8; ++i) bytes[i] = hn::LoadU(d, of_columns[i]);
  for (int turn = 0; turn < 3; ++turn) {
    HWY_UNROLL(4)
    for (int64_t i = 0; i < 4; ++i) {
      next[2 * i] = hn::InterleaveLower(d, bytes[i], bytes[i + 4]);
      next[2 * i + 1] = hn::InterleaveUpper(d, bytes[i], bytes[i + 4]);
    }
    HWY_UNROLL(8)
    for (int64_t i = 0; i < 8; ++i) bytes[i] = next[i];
  }
  for (int64_t i = 0; i < 8; ++i) hn::StoreU(bytes[i], d, of_groups[2 * i]);
#endif
  HWY_ALIGN float of_blocks[2][8];
  const hn::CappedTag<float, 8> f;
  for (int which : {0, 1}) {
    for (size_t i = 0; i < 8; i += hn::MaxLanes(f)) {
      hn::Store(core::HWY_NAMESPACE::load(f, halves[which] + i), f, of_blocks[which] + i);
    }
  }
  for (int64_t g = 0; g < count; ++g) {
    store_scales(of_groups[g], of_blocks[0], to.scales[g] + j);
    store_scales(of_groups[8 + g], of_blocks[1], to.minimums[g] + j);
  }
}

/// Reads the factors of `count` groups from `first` on of the columns, whose rows `row_of` gives.
template <int64_t Columns, class Block, class RowOf>
HWY_INLINE void read_factors(const RowOf& row_of, int64_t first, int64_t count, Factors<Columns>& to) {
  if constexpr (has_minimums<Block>) {
    for (int64_t j = 0; j < Columns; j += 8) read_group_scales(row_of, j, first, count, to);
  } else {
    HWY_ALIGN float16 halves[groups_at_once][Columns];
    for (int64_t j = 0; j < Columns; ++j) {
      const Block* const row = row_of(j);
      for (int64_t g = 0; g < count; ++g) halves[g][j] = block_at(row, first + g).scale;
    }
    const hn::CappedTag<float, static_cast<size_t>(Columns)> f;
    for (int64_t g = 0; g < count; ++g) {
      for (size_t j = 0; j < Columns; j += hn::MaxLanes(f)) {
        hn::Store(core::HWY_NAMESPACE::load(f, halves[g] + j), f, to.scales[g] + j);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();
#endif
