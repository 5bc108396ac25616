// Products of rows that are rounded to 8 bits with weights in blocks (core/blocks.h). The products of 32 numbers are
// summed as integers, so exactly, and the sums are added in the order of the blocks:
//
//   c = sum over blocks of 32 of  scale of a * scale of b * (sum of quants of a * quants of b)
//                               - scale of a * minimum of b * (sum of quants of a)
//
// Hence a number of c has the same bits whichever rows are computed with it, at any number of threads and with any
// instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "core/memory.h"
#include "core/parallel.h"
#include "nn/products.h"
#include "nn/rounded_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/integer_gemm.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/quants-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// a * b + c, rounded once.
template <class D, class Vector>
HWY_INLINE Vector rounded_once(D d, Vector a, Vector b, Vector c) {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[hn::MaxLanes(D())], y[hn::MaxLanes(D())], z[hn::MaxLanes(D())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

/// sums += the group of R rows and `Columns` columns with these integer sums.
template <int R, int64_t Columns, bool Minimums>
HWY_INLINE void add_group(const RoundedRows& a, int64_t row, int64_t index, const int32_t (*integers)[Columns],
                          const float* scales, const float* minimums, float (*sums)[Columns]) {
  const hn::CappedTag<float, static_cast<size_t>(Columns)> f;
  const hn::RebindToSigned<decltype(f)> i32;
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    const auto at = static_cast<size_t>((row + r) * a.blocks() + index);
    const auto scale = hn::Set(f, a.scales[at]);
    HWY_UNROLL(4)
    for (size_t j = 0; j < Columns; j += hn::MaxLanes(f)) {
      auto sum = hn::Load(f, sums[r] + j);
      sum = rounded_once(f, hn::ConvertTo(f, hn::Load(i32, integers[r] + j)), hn::Mul(scale, hn::Load(f, scales + j)),
                         sum);
      if constexpr (Minimums) {
        sum = rounded_once(f, hn::Set(f, -a.sums[at]), hn::Mul(scale, hn::Load(f, minimums + j)), sum);
      }
      hn::Store(sum, f, sums[r] + j);
    }
  }
}

// Few rows: each column's quants are multiplied as they lie in memory.

constexpr int64_t few_columns = 8;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
/// Sums of four products. |w| is at most 128 and |a| at most 127, so that no sum of two exceeds 16 bits.
template <class Block>
HWY_INLINE __m256i products_of(__m256i w, const int8_t* a_at, __m256i halves) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a_at));
  const __m256i twos = has_minimums<Block> ? _mm256_maddubs_epi16(w, a)  // w >= 0
                                           : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  const __m256i sums = _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
  return has_halves<Block> ? _mm256_mullo_epi32(sums, halves) : sums;
}
#endif

/// integers[r][j] = the sum of the products of a group, of row r of a and column j, with the factors of the halves.
template <int R, class Block>
HWY_INLINE void multiply_group(const int8_t* a, int64_t stride, const int8_t* const* columns,
                               const int8_t* const* halves, int32_t (*integers)[few_columns]) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  __m256i fours[R][2];
  HWY_UNROLL(2)
  for (int four = 0; four < 2; ++four) {
    __m256i twos[R][2];
    HWY_UNROLL(2)
    for (int two = 0; two < 2; ++two) {
      __m256i w[2], of_halves[2] = {};
      HWY_UNROLL(2)
      for (int one = 0; one < 2; ++one) {
        const int j = 4 * four + 2 * two + one;
        w[one] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns[j]));
        if constexpr (has_halves<Block>) {
          of_halves[one] = _mm256_set_m128i(_mm_set1_epi32(halves[j][1]), _mm_set1_epi32(halves[j][0]));
        }
      }
      HWY_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        twos[r][two] = _mm256_hadd_epi32(products_of<Block>(w[0], a + r * stride, of_halves[0]),
                                         products_of<Block>(w[1], a + r * stride, of_halves[1]));
      }
    }
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) fours[r][four] = _mm256_hadd_epi32(twos[r][0], twos[r][1]);
  }
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    const __m256i low = _mm256_permute2x128_si256(fours[r][0], fours[r][1], 0x20);
    const __m256i high = _mm256_permute2x128_si256(fours[r][0], fours[r][1], 0x31);
    _mm256_store_si256(reinterpret_cast<__m256i*>(integers[r]), _mm256_add_epi32(low, high));
  }
#else
  for (int r = 0; r < R; ++r) {
    for (int64_t j = 0; j < few_columns; ++j) {
      int32_t sums[2] = {};
      for (int64_t i = 0; i < group; ++i) sums[i / (group / 2)] += int32_t{a[r * stride + i]} * columns[j][i];
      integers[r][j] = has_halves<Block> ? sums[0] * halves[j][0] + sums[1] * halves[j][1] : sums[0] + sums[1];
    }
  }
#endif
}

/// R rows of c, and up to few_columns columns from `column` on.
template <int R, class Block>
void few_rows(const Product& p, const RoundedRows& a, const Block* b, int64_t row, int64_t column, int64_t count) {
  const Block* rows[few_columns];
  for (int64_t j = 0; j < few_columns; ++j) rows[j] = b + (column + std::min(j, count - 1)) * p.b.stride;
  HWY_ALIGN float sums[R][few_columns] = {};
  Factors<few_columns> factors;
  // The next columns lie directly after these in memory, and are read ahead in its order, a part with each group. The
  // addresses may lie behind the last one.
  constexpr uintptr_t bytes_of_group = few_columns * sizeof(Block) * group / Block::size;
  uintptr_t ahead =
      reinterpret_cast<uintptr_t>(b) + static_cast<uintptr_t>((column + few_columns) * p.b.stride) * sizeof(Block);
  for (int64_t first = 0; first < a.blocks(); first += groups_at_once) {
    const int64_t groups = std::min(groups_at_once, a.blocks() - first);
    read_factors<few_columns, Block>([&](int64_t j) { return rows[j]; }, first, groups, factors);
    for (int64_t g = 0; g < groups; ++g) {
      for (uintptr_t byte = 0; byte < bytes_of_group; byte += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(ahead + byte), 0, 2);
      }
      ahead += bytes_of_group;
      HWY_ALIGN int8_t memory[few_columns][group];
      HWY_ALIGN int32_t integers[R][few_columns];
      const int8_t* quants[few_columns];
      const int8_t* halves[few_columns] = {};
      HWY_UNROLL(8)
      for (int64_t j = 0; j < few_columns; ++j) {
        const Block& block = block_at(rows[j], first + g);
        quants[j] = quants_of(block, within<Block>(first + g), memory[j]);
        if constexpr (has_halves<Block>) halves[j] = block.scales + 2 * within<Block>(first + g);
      }
      multiply_group<R, Block>(a.quants_of(row) + (first + g) * group, a.k, quants, halves, integers);
      add_group<R, few_columns, has_minimums<Block>>(a, row, first + g, integers, factors.scales[g],
                                                     factors.minimums[g], sums);
    }
  }
  for (int r = 0; r < R; ++r) store_sums(p, row + r, column, sums[r], count);
}

// Many rows: the quants of 16 columns are first arranged so that 32 bits of one column lie beside those of the next:
// two numbers of 16 bits, or four of 8 where the quants are so small that sums of their products fit into 16 bits.

constexpr int64_t many_columns = 16;

/// For which types, what is added to make a quant positive, and of how many pairs of products a sum fits into 16 bits:
/// a product is at most 15 * 127, with five bits 31 * 127.
template <class Block>
constexpr bool is_narrow = std::is_same_v<Block, core::q4_block> || has_minimums<Block>;
template <class Block>
constexpr int added_to_quant = std::is_same_v<Block, core::q4_block> ? 8 : 0;
template <class Block>
constexpr int64_t pairs_in_16_bits = std::is_same_v<Block, core::q5_k_block> ? 4 : 8;
template <class Block>
using ArrangedQuant = std::conditional_t<is_narrow<Block>, uint8_t, int16_t>;
/// Numbers of a column in 32 bits.
template <class Block>
constexpr int64_t numbers_per_lane = sizeof(int32_t) / sizeof(ArrangedQuant<Block>);

/// 16 columns of b.
template <class Block>
struct Arranged {
  ArrangedQuant<Block>* quants;    ///< [groups][group / lane][many_columns][lane], with the factors of the halves
  Factors<many_columns>* factors;  ///< [groups / groups_at_once]
};

template <class Block>
void arrange(const Product& p, const Block* b, int64_t groups, int64_t column, int64_t count,
             const Arranged<Block>& to) {
  const auto row_of = [&](int64_t j) { return b + (column + std::min(j, count - 1)) * p.b.stride; };
  for (int64_t first = 0; first < groups; first += groups_at_once) {
    read_factors<many_columns, Block>(row_of, first, std::min(groups_at_once, groups - first),
                                      to.factors[first / groups_at_once]);
  }
  using Quant = ArrangedQuant<Block>;
  constexpr int64_t lane = numbers_per_lane<Block>;
  for (int64_t j = 0; j < many_columns; ++j) {
    const Block* const row = row_of(j);
    for (int64_t g = 0; g < groups; ++g) {
      HWY_ALIGN int8_t memory[group];
      HWY_ALIGN Quant numbers[group];
      const Block& block = block_at(row, g);
      const int8_t* const quants = quants_of(block, within<Block>(g), memory);
      for (int64_t i = 0; i < group; ++i) numbers[i] = static_cast<Quant>(quants[i] + added_to_quant<Block>);
      if constexpr (has_halves<Block>) {
        const int8_t* const halves = block.scales + 2 * within<Block>(g);
        for (int64_t i = 0; i < group; ++i) numbers[i] = static_cast<Quant>(numbers[i] * halves[i / (group / 2)]);
      }
      Quant* const at = to.quants + g * group * many_columns + j * lane;
      for (int64_t i = 0; i < group / lane; ++i) {
        std::memcpy(at + i * lane * many_columns, numbers + lane * i, sizeof(int32_t));
      }
    }
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
using Lanes16 = hn::CappedTag<int16_t, 2 * many_columns>;
/// Sums of two products of 8 bits, of unsigned w and signed a.
HWY_INLINE hn::Vec<Lanes16> sums_of_pairs(hn::Vec<Lanes16> w, hn::Vec<Lanes16> a) {
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<Lanes16>{_mm512_maddubs_epi16(w.raw, a.raw)};
#else
  return hn::Vec<Lanes16>{_mm256_maddubs_epi16(w.raw, a.raw)};
#endif
}
#endif

/// integers[r][j] = the sum of the products of group `index`, of row row + r and arranged column j.
template <int R, class Block>
HWY_INLINE void multiply_arranged(const RoundedRows& rows, int64_t row, int64_t index,
                                  const ArrangedQuant<Block>* quants, int32_t (*integers)[many_columns]) {
  constexpr int64_t lane = numbers_per_lane<Block>;
  const auto* const a = [&] {
    if constexpr (is_narrow<Block>) return rows.quants_of(row) + index * group;
    if constexpr (!is_narrow<Block>) return rows.wide_of(row) + index * group;
  }();
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const Lanes16 d16;
  const hn::RepartitionToWide<Lanes16> d32;
  constexpr size_t vectors = many_columns / hn::MaxLanes(d32);
  const auto weights = [&](int64_t i, size_t v) HWY_ATTR {
    const auto* const at = quants + lane * (i * many_columns + static_cast<int64_t>(v * hn::MaxLanes(d32)));
    return hn::Load(d16, reinterpret_cast<const int16_t*>(at));
  };
  const auto numbers = [&](int64_t i, int r) HWY_ATTR {
    int32_t bits;
    std::memcpy(&bits, a + r * rows.k + lane * i, sizeof bits);
    return hn::BitCast(d16, hn::Set(d32, bits));
  };
  hn::Vec<decltype(d32)> sum[R][vectors], unused = hn::Zero(d32);
  for (int r = 0; r < R; ++r) {
    // What was added to the quants adds this much to the sum.
    const float too_much =
        added_to_quant<Block> == 0 ? 0 : rows.sums[static_cast<size_t>((row + r) * rows.blocks() + index)];
    for (size_t v = 0; v < vectors; ++v)
      sum[r][v] = hn::Set(d32, -added_to_quant<Block> * static_cast<int32_t>(too_much));
  }
  if constexpr (is_narrow<Block>) {
    constexpr int64_t steps = pairs_in_16_bits<Block>;
    for (int64_t first = 0; first < group / lane; first += steps) {
      hn::Vec<Lanes16> narrow[R][vectors];
      HWY_UNROLL(8)
      for (int64_t i = 0; i < steps; ++i) {
        HWY_UNROLL(4)
        for (int r = 0; r < R; ++r) {
          HWY_UNROLL(2)
          for (size_t v = 0; v < vectors; ++v) {
            const auto pairs = sums_of_pairs(weights(first + i, v), numbers(first + i, r));
            // GCC would add plain sums in another order, which needs more registers than there are.
            narrow[r][v] = i == 0 ? pairs : hn::SaturatedAdd(narrow[r][v], pairs);
          }
        }
      }
      HWY_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        for (size_t v = 0; v < vectors; ++v) {
          sum[r][v] = hn::ReorderWidenMulAccumulate(d32, narrow[r][v], hn::Set(d16, 1), sum[r][v], unused);
        }
      }
    }
  } else {
    HWY_UNROLL(4)
    for (int64_t i = 0; i < group / lane; ++i) {
      HWY_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        HWY_UNROLL(2)
        for (size_t v = 0; v < vectors; ++v) {
          sum[r][v] = hn::ReorderWidenMulAccumulate(d32, weights(i, v), numbers(i, r), sum[r][v], unused);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    for (size_t v = 0; v < vectors; ++v) hn::Store(sum[r][v], d32, integers[r] + v * hn::MaxLanes(d32));
  }
#else
  for (int r = 0; r < R; ++r) {
    std::fill_n(integers[r], many_columns, 0);
    for (int64_t i = 0; i < group; i += lane) {
      const ArrangedQuant<Block>* const at = quants + i * many_columns;
      for (int64_t j = 0; j < many_columns; ++j) {
        for (int64_t l = 0; l < lane; ++l) {
          integers[r][j] += a[r * rows.k + i + l] * (at[lane * j + l] - added_to_quant<Block>);
        }
      }
    }
  }
#endif
}

template <int R, class Block>
void many_rows(const Product& p, const RoundedRows& a, const Arranged<Block>& b, int64_t row, int64_t column,
               int64_t count) {
  HWY_ALIGN float sums[R][many_columns];
  for (int r = 0; r < R; ++r) std::fill_n(sums[r], many_columns, 0.F);
  for (int64_t g = 0; g < a.blocks(); ++g) {
    HWY_ALIGN int32_t integers[R][many_columns];
    multiply_arranged<R, Block>(a, row, g, b.quants + g * group * many_columns, integers);
    const Factors<many_columns>& factors = b.factors[g / groups_at_once];
    const int64_t at = g % groups_at_once;
    add_group<R, many_columns, has_minimums<Block>>(a, row, g, integers, factors.scales[at], factors.minimums[at],
                                                    sums);
  }
  for (int r = 0; r < R; ++r) store_sums(p, row + r, column, sums[r], count);
}

/// Calls run(R, row) for groups of four rows, and for the rest.
template <class Run>
HWY_INLINE void in_fours(int64_t row, int64_t end, const Run& run) {
  for (; row + 4 <= end; row += 4) run(std::integral_constant<int, 4>(), row);
  if (end - row == 3) run(std::integral_constant<int, 3>(), row);
  if (end - row == 2) run(std::integral_constant<int, 2>(), row);
  if (end - row == 1) run(std::integral_constant<int, 1>(), row);
}

/// Columns [begin, end) of c.
template <class Block>
void columns_of(const Product& p, const RoundedRows& a, const Block* b, int64_t begin, int64_t end) {
  constexpr int64_t most_few = 24;  // rows for which it costs too much to arrange the weights
  if (p.m <= most_few) {
    for (int64_t column = begin; column < end; column += few_columns) {
      in_fours(0, p.m, [&](auto rows, int64_t row) {
        few_rows<decltype(rows)::value>(p, a, b, row, column, std::min(few_columns, end - column));
      });
    }
    return;
  }
  // The arranged columns stay in the second-level cache, and so do the rows of a that pass over them.
  constexpr int64_t bytes = 1 << 17;
  constexpr int64_t quant = sizeof(ArrangedQuant<Block>);
  const int64_t tiles = std::max<int64_t>(1, bytes / (quant * p.k * many_columns));
  const int64_t rows_at_once = std::max<int64_t>(1, bytes / (quant * p.k * 4)) * 4;
  const int64_t factors = core::ceil_div(a.blocks(), groups_at_once);
  const auto bytes_of_quants = static_cast<size_t>(tiles * p.k * many_columns * quant);
  const std::shared_ptr<void> memory = core::allocate(
      bytes_of_quants + static_cast<size_t>(tiles * factors) * sizeof(Factors<many_columns>), /*zeros=*/false);
  auto* const quants = static_cast<ArrangedQuant<Block>*>(memory.get());
  auto* const all_factors =
      reinterpret_cast<Factors<many_columns>*>(static_cast<char*>(memory.get()) + bytes_of_quants);
  for (int64_t first = begin; first < end; first += tiles * many_columns) {
    const int64_t count = std::min(tiles, core::ceil_div(end - first, many_columns));
    const auto tile = [&](int64_t t) {
      return Arranged<Block>{quants + t * p.k * many_columns, all_factors + t * factors};
    };
    const auto columns = [&](int64_t t) { return std::min(many_columns, end - first - t * many_columns); };
    for (int64_t t = 0; t < count; ++t) arrange(p, b, a.blocks(), first + t * many_columns, columns(t), tile(t));
    for (int64_t from = 0; from < p.m; from += rows_at_once) {
      for (int64_t t = 0; t < count; ++t) {
        in_fours(from, std::min(p.m, from + rows_at_once), [&](auto rows, int64_t row) {
          many_rows<decltype(rows)::value>(p, a, tile(t), row, first + t * many_columns, columns(t));
        });
      }
    }
  }
}

void multiply_rounded(const Product& p, const RoundedRows& a, int64_t begin, int64_t end) {
  core::as_type(p.b.data, p.b.dtype, [&](const auto* data) {
    using Block = std::remove_cvref_t<decltype(*data)>;
    if constexpr (is_block<Block>) columns_of(p, a, data, begin, end);
  });
}

/// Rounds row `row` of a, which is float32.
void round_row(const float* x, int64_t row, RoundedRows& to) {
  const Floats f;
  for (int64_t block = 0; block < to.blocks(); ++block) {
    const float* const from = x + block * group;
    const auto at = static_cast<size_t>(row * to.blocks() + block);
    int8_t* const quants = to.quants.data() + row * to.k + block * group;
    int16_t* const wide = to.wide.data() + row * to.k + block * group;
    V largest = zero(), nothing = zero();
    for (int64_t i = 0; i < group; i += block_lanes) {
      const V v = hn::LoadU(f, from + i);
      largest = hn::Max(largest, hn::Abs(v));
      nothing = hn::Add(nothing, hn::Mul(v, zero()));  // NaN after infinity or NaN
    }
    const float most = hn::GetLane(hn::MaxOfLanes(f, largest));
    const bool finite = hn::GetLane(hn::SumOfLanes(f, nothing)) == 0;
    const float inverse = finite && most >= 0x1p-100f ? 127 / most : 0;
    to.scales[at] = !finite ? std::numeric_limits<float>::quiet_NaN() : inverse > 0 ? most / 127 : 0;
    for (int64_t i = 0; i < group; i += block_lanes) {
      const V v = finite ? hn::LoadU(f, from + i) : zero();
      const I quant = hn::NearestInt(hn::Mul(v, set(inverse)));
      hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, Floats>(), quant), hn::Rebind<int8_t, Floats>(), quants + i);
      hn::StoreU(hn::DemoteTo(hn::Rebind<int16_t, Floats>(), quant), hn::Rebind<int16_t, Floats>(), wide + i);
    }
    int32_t sum = 0;
    for (int64_t i = 0; i < group; ++i) sum += quants[i];
    to.sums[at] = static_cast<float>(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/weights.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(multiply_rounded);
HWY_EXPORT(round_row);

thread_local int integer_products = 0;  // number of IntegerProducts of this thread

}  // namespace

IntegerProducts::IntegerProducts(bool wanted) : count_(wanted ? 1 : 0) { integer_products += count_; }
IntegerProducts::~IntegerProducts() { integer_products -= count_; }
bool IntegerProducts::wanted() { return integer_products > 0; }

void integer_gemm(const Product& p) {
  core::prepare_dispatch();
  RoundedRows a(p.m, p.k);
  const auto round = HWY_DYNAMIC_DISPATCH(round_row);
  const int64_t rows = std::max<int64_t>(1, (1 << 15) / p.k);
  core::parallel_ranges(p.m, rows, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(p.a.dtype == DType::float32 ? 0 : static_cast<size_t>(p.k));
    for (int64_t row = begin; row < end; ++row) {
      const void* const from = p.a.at(row, 0).data;
      if (!wide.empty()) widen_row(from, p.a.dtype, p.k, wide.data());
      round(wide.empty() ? static_cast<const float*>(from) : wide.data(), row, a);
    }
  });
  const auto kernel = HWY_DYNAMIC_DISPATCH(multiply_rounded);
  const int64_t row_bytes = bytes_of_row(p.b.dtype, p.k);
  const int64_t task_bytes = std::clamp<int64_t>(p.n * row_bytes / (4 * threads()), 1 << 16, 1 << 20);
  const int64_t columns = std::max<int64_t>(1, task_bytes / row_bytes / 16) * 16;
  core::parallel_ranges(p.n, columns, [&](int64_t begin, int64_t end) { kernel(p, a, begin, end); });
}

}  // namespace alibi::nn
#endif
