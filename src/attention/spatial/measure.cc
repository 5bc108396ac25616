// What the skip rule needs of a block of keys.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/spatial/spatial.h"
#include "attention/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/spatial/measure.cc"
#include "hwy/foreach_target.h"
// Highway requires foreach_target.h to come first.
#include "attention/spatial/tile-inl.h"
#include "attention/vector/skip-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {
namespace {

/// log2 of the sum over keys of 2^(x |k - c|), rounded up.
double log2_of_weights(const float* radii, float largest, int64_t count, float x) {
  const Floats f;
  Float sum = hn::Zero(f);
  for (int64_t y = 0; y < count; y += lanes) {
    const Float score = hn::Mul(hn::Set(f, x), hn::Sub(hn::Load(f, radii + y), hn::Set(f, largest)));
    const auto real = hn::Lt(hn::Iota(f, static_cast<float>(y)), hn::Set(f, static_cast<float>(count)));
    sum = hn::Add(sum, hn::IfThenElseZero(real, exp2_of(score)));
  }
  constexpr double rounding = 1 + 0x1p-14;  // covers the errors of the exponents (down to -126), powers and sum
  constexpr double flushed = static_cast<double>(key_rows) * 0x1p-125;
  const double weights = static_cast<double>(hn::GetLane(hn::SumOfLanes(f, sum))) * rounding + flushed;
  const double most = static_cast<double>(x) * static_cast<double>(largest);
  return most * (1 + 0x1p-22) + static_cast<double>(std::log2(static_cast<float>(weights)));
}

}  // namespace

void measure_spatial_keys(const SpatialProblem& problem, size_t s, int64_t kv_head, int64_t block,
                          const WeightBounds::Head* heads, SpatialBounds::Values* logs, int64_t head_stride,
                          float* radius, float* norm) {
  const FlushDenormals flush;
  const Problem& base = problem.base;
  const TokenOrder& order = *problem.sequences[s].keys;
  const TokenBlock& tokens = order.blocks[static_cast<size_t>(block)];
  const int64_t size = round_up(base.head_dim, 16);
  Workspace workspace = Workspace::take(static_cast<size_t>(key_rows * size));
  float* const keys = workspace.part(key_rows * size);
  gather_rows(base, base.k, base.sequences[s].batch, base.sequences[s].key_begin,
              &order.rows[static_cast<size_t>(tokens.begin)], tokens.count, kv_head, keys, size);
  HWY_ALIGN float radii[key_rows] = {};
  const float* const centre = heads->centre_norm != 0 ? heads->centre : nullptr;
  float largest = 0, longest = 0;
  for (int64_t y = 0; y < tokens.count; ++y) {
    if (centre != nullptr) longest = std::max(longest, norm_bound(keys + y * size, size));
    radii[y] = norm_bound(keys + y * size, size, centre);
    largest = std::max(largest, radii[y]);
  }
  *radius = largest;
  *norm = centre != nullptr ? longest : largest;
  for (int64_t g = 0; g < base.group(); ++g) {
    SpatialBounds::Values& values = logs[g * head_stride];
    for (size_t e = 0; e < values.size(); ++e) {
      const double bound = largest <= std::numeric_limits<float>::max()
                               ? log2_of_weights(radii, largest, tokens.count, heads[g].x[e])
                               : HUGE_VAL;
      values[e] = static_cast<float>(bound + 0x1p-22 * std::abs(bound));
    }
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace alibi::kernels {

HWY_EXPORT(measure_spatial_keys);

void spatial_measure_keys(const SpatialProblem& problem, size_t sequence, int64_t kv_head, int64_t block,
                          const WeightBounds::Head* heads, SpatialBounds::Values* logs, int64_t head_stride,
                          float* radius, float* norm) {
  HWY_DYNAMIC_DISPATCH(measure_spatial_keys)(problem, sequence, kv_head, block, heads, logs, head_stride, radius, norm);
}

}  // namespace alibi::kernels
#endif
