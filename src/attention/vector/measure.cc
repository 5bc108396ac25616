// Values of queries and keys that the skip rule needs: bounds of the weight of a block of keys, and products with a
// centre.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/skip/weights.h"
#include "attention/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/vector/measure.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/vector/skip-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// Maximum number of keys in a block.
constexpr int64_t max_keys = 64;
/// Maximum size of a row in centre_products().
constexpr int64_t max_centre_size = 256;

/// log2 of the sum over keys of 2^(x |k - c| - fall * distance - gates), rounded up. The first key is at distance
/// `first`, and the distance grows by `step` with each key. `gates` is null without gates.
double log2_weights(const float* radii, float largest, int64_t count, float x, float fall, int64_t first, int step,
                    const float* gates) {
  const Floats f;
  Float sum = hn::Zero(f);
  const Float factor = hn::Set(f, x), top = hn::Set(f, largest), m = hn::Set(f, fall);
  for (int64_t y = 0; y < count; y += lanes) {
    const Float key = hn::Iota(f, static_cast<float>(y));
    const Float distance = hn::MulAdd(key, hn::Set(f, static_cast<float>(step)), hn::Set(f, static_cast<float>(first)));
    const Float score = hn::Mul(factor, hn::Sub(hn::Load(f, radii + y), top));
    const auto real = hn::Lt(key, hn::Set(f, static_cast<float>(count)));
    Float exponent = hn::NegMulAdd(m, distance, score);
    if (gates != nullptr) exponent = hn::Sub(exponent, hn::Load(f, gates + y));
    sum = hn::Add(sum, hn::IfThenElseZero(real, exp2_of(exponent)));
  }
  constexpr double rounding =
      1 + 0x1p-14;  // covers the errors of the exponents (down to -126), of the powers and of the sum
  constexpr double flushed = max_keys * 0x1p-125;
  const double weights = static_cast<double>(hn::GetLane(hn::SumOfLanes(f, sum))) * rounding + flushed;
  const double most = static_cast<double>(x) * static_cast<double>(largest);
  return most * (1 + 0x1p-22) + static_cast<double>(std::log2(static_cast<float>(weights)));
}

}  // namespace

void measure_block(const Problem& problem, size_t s, int64_t kv_head, int64_t block, WeightBounds& bounds) {
  const FlushDenormals flush;
  const Sequence& sequence = problem.sequences[s];
  const int64_t size = bounds.size(), rows = bounds.block_rows(), key = block * rows;
  const int64_t count = std::min(rows, sequence.keys - key);
  const bool in_place = problem.dtype == DType::float32 && problem.head_dim == size && problem.page_rows == 0 &&
                        problem.coordinates.empty();
  Workspace workspace = Workspace::take(in_place ? 0 : static_cast<size_t>(rows * size));
  float* const keys = in_place ? nullptr : workspace.part(rows * size);
  if (!in_place) load_keys(problem, problem.k, sequence, key, count, kv_head, keys, size);
  const WeightBounds::Head shared = bounds.head(s, kv_head * problem.group());
  HWY_ALIGN float radii[max_keys] = {};
  const float* const centre = shared.centre_norm != 0 ? shared.centre : nullptr;
  float largest = 0, longest = 0;
  for (int64_t y = 0; y < count; ++y) {
    const float* const row =
        in_place ? problem.k.at<const float>(sequence.batch, sequence.key_begin + key + y, kv_head) : keys + y * size;
    if (centre != nullptr) longest = std::max(longest, norm_bound(row, size));
    radii[y] = norm_bound(row, size, centre);
    largest = std::max(largest, radii[y]);
  }
  bounds.set_norms(s, kv_head, block, largest, centre != nullptr ? longest : largest);
  for (int64_t head = kv_head * problem.group(); head < (kv_head + 1) * problem.group(); ++head) {
    const HeadBias bias = problem.bias(sequence, head);
    const WeightBounds::Values x = bounds.head(s, head).x;
    HWY_ALIGN float gates[max_keys] = {};
    for (int64_t y = 0; bias.decay && y < count; ++y) {
      gates[y] = static_cast<float>(gates_in_log2(bias.decay, key + y, key + rows - 1));
    }
    const auto fill = [&](WeightBounds::Values& values, Side side, int64_t first, int step) {
      const auto m = bias.coordinates ? 0 : static_cast<float>(fall_in_log2(*bias.form, side));
      for (size_t e = 0; e < values.size(); ++e) {
        const double bound =
            largest <= std::numeric_limits<float>::max()
                ? log2_weights(radii, largest, count, x[e], m, first, step, bias.decay ? gates : nullptr)
                : HUGE_VAL;
        values[e] = static_cast<float>(bound + 0x1p-22 * std::abs(bound));
      }
    };
    fill(bounds.block_before(s, head, block), Side::before, rows - 1, -1);
    if (!problem.causal) fill(bounds.block_from(s, head, block), Side::after, 0, 1);
  }
}

void load_strided(const Problem& problem, const Sequence& sequence, BlockIndex::Of of, int64_t step, int64_t count,
                  int64_t head, float* rows, int64_t size) {
  const bool keys = of == BlockIndex::Of::keys;
  for (int64_t i = 0; i < count; ++i) {
    const KeyRow at =
        keys ? problem.key_row(sequence, i * step) : KeyRow{sequence.batch, sequence.query_begin + i * step};
    load_block(problem, keys ? problem.k : problem.q, at.batch, at.row, 1, head, rows + i * size, size);
  }
}

void multiply_centre(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row, int64_t count,
                     const float* centre, int64_t size, float* products) {
  HWY_ALIGN float values[max_centre_size];
  for (int64_t i = 0; i < count; ++i) {
    load_block(problem, problem.q, sequence.batch, sequence.query_begin + row + i, 1, head, values, size);
    products[i] = scaled_product(problem, values, centre, size);
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(measure_block);
HWY_EXPORT(load_strided);
HWY_EXPORT(multiply_centre);

void measure_keys(const Problem& problem, size_t sequence, int64_t kv_head, int64_t block, WeightBounds& bounds) {
  HWY_DYNAMIC_DISPATCH(measure_block)(problem, sequence, kv_head, block, bounds);
}

void load_rows(const Problem& problem, const Sequence& sequence, BlockIndex::Of of, int64_t step, int64_t count,
               int64_t head, float* rows, int64_t size) {
  HWY_DYNAMIC_DISPATCH(load_strided)(problem, sequence, of, step, count, head, rows, size);
}

void centre_products(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row, int64_t count,
                     const float* centre, int64_t size, float* products) {
  HWY_DYNAMIC_DISPATCH(multiply_centre)(problem, sequence, head, row, count, centre, size, products);
}

}  // namespace alibi::kernels
#endif
