// Visiting a range of a cache's keys with a few rows: dot products, the online softmax block by block, and the weighted
// sum of the values. Each block of keys is read from memory once for all rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/decode/kernel.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "attention/decode/decode.h"
#include "attention/decode/rows-inl.h"
#include "attention/vector/vector-inl.h"
#include "attention/workspace.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// Number of rows that are computed together over a block: their sums fit the registers.
inline constexpr int row_tile = lanes == 16 ? 4 : 2;
inline constexpr float unseen = -std::numeric_limits<float>::infinity();

/// biases[i] = bias of key `first` + i minus the returned base, in log2 units. A bias that slides is counted from the
/// block's key that is nearest to the row. The base is float64, so that weights keep their precision at any distance.
inline double fill_by_distance(const DecodeRow& row, int64_t first, float* biases) {
  constexpr float log2e = std::numbers::log2e_v<float>;
  const HeadBias& bias = row.bias;
  const int64_t nearest_before = row.position - (first + cache_block - 1);
  const int64_t nearest_after = first - row.position;
  if (!bias->slides()) {
    bias->tile(nearest_before, 0, cache_block, 1, biases);
    std::reverse(biases, biases + cache_block);
    return 0;
  }
  if (nearest_before > 0 || nearest_after > 0) {
    const bool before = nearest_before > 0;
    const double fall = bias->fall(before ? Side::before : Side::after, 1);
    const Floats f;
    const Float step = hn::Set(f, static_cast<float>(before ? fall : -fall) * log2e);
    const Float origin = hn::Set(f, before ? static_cast<float>(cache_block - 1) : 0.0f);
    for (int64_t i = 0; i < cache_block; i += lanes) {
      hn::Store(hn::Mul(step, hn::Sub(hn::Iota(f, static_cast<float>(i)), origin)), f, biases + i);
    }
    return -fall * std::numbers::log2e * static_cast<double>(before ? nearest_before : nearest_after);
  }
  for (int64_t i = 0; i < cache_block; ++i) biases[i] = log2e * bias->at(row.position - first - i);
  return 0;
}

/// The same with the gates of the keys.
inline double fill_bias(const DecodeRow& row, int64_t first, float* biases) {
  const double base = fill_by_distance(row, first, biases);
  const HeadDecay& decay = row.bias.decay;
  if (!decay) return base;
  HWY_ALIGN float gates[cache_block];  // they too count from the block's last key before the row
  const int64_t nearest = std::min(first + cache_block - 1, decay.key_of(row.position));
  decay.sums(nearest, first, cache_block, -std::numbers::log2e, gates);
  const Floats f;
  for (int64_t i = 0; i < cache_block; i += lanes) {
    hn::Store(hn::Add(hn::Load(f, biases + i), hn::Load(f, gates + i)), f, biases + i);
  }
  return base + decay.sum(nearest, row.position) * std::numbers::log2e;
}

/// Converts a row's dot products with keys [from, to) of a block to weights relative to the row's new maximum.
inline void weigh(const DecodeRow& row, ScoreScale scale, int64_t first, int64_t from, int64_t to, int64_t stride,
                  float* scores, DecodePartial& partial) {
  const Floats f;
  HWY_ALIGN float biases[cache_block];
  const double base = fill_bias(row, first, biases);
  constexpr float log2e = std::numbers::log2e_v<float>;
  const bool capped = scale.softcap > 0;
  const Float factor = hn::Set(f, capped ? scale.scale / scale.softcap : scale.scale * log2e);
  const Float cap = hn::Set(f, scale.softcap * log2e);
  Float top = hn::Set(f, unseen);
  const auto hide = [&](int64_t i) {
    scores[i] = 0;
    biases[i] = unseen;
  };
  for (int64_t i = 0; i < from; ++i) hide(i);
  for (int64_t i = to; i < cache_block; ++i) hide(i);
  for (int64_t i = 0; i < cache_block; i += lanes) {
    const Float product = hn::Load(f, scores + i), bias = hn::Load(f, biases + i);
    const Float score =
        capped ? hn::MulAdd(hn::Tanh(f, hn::Mul(product, factor)), cap, bias) : hn::MulAdd(product, factor, bias);
    hn::Store(score, f, scores + i);
    top = hn::Max(top, score);
  }
  const float block_max = hn::GetLane(hn::MaxOfLanes(f, top));
  const double max = base + static_cast<double>(block_max);
  if (max > partial.max) {
    const auto shrink = static_cast<float>(std::exp2(partial.max - max));
    for (int64_t d = 0; d < stride; d += lanes) {
      hn::Store(hn::Mul(hn::Load(f, partial.out + d), hn::Set(f, shrink)), f, partial.out + d);
    }
    partial.sum *= static_cast<double>(shrink);
    partial.max = max;
  }
  // The weight is 2^(score - block_max) 2^(block_max - max), so that weights of far blocks, whose scores are large,
  // keep their precision. While all scores are -infinity, the weights are 0, or NaN if a score is NaN.
  const bool none = block_max == unseen;
  const Float shift = hn::Set(f, none ? 0.0f : block_max);
  const Float share = hn::Set(f, none ? 1.0f : static_cast<float>(std::exp2(max - partial.max)));
  Float sum = hn::Zero(f);
  for (int64_t i = 0; i < cache_block; i += lanes) {
    const Float weight = hn::Mul(exp2_of(hn::Sub(hn::Load(f, scores + i), shift)), share);
    hn::Store(weight, f, scores + i);
    sum = hn::Add(sum, weight);
  }
  partial.sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(f, sum)));
}

/// Data that the first pass over a block prefetches: the block's values, and the keys that are read next.
struct ToPrefetch {
  const void *values = nullptr, *keys = nullptr;
};

/// Processes keys [from, to) of the block that begins at key `first`, for R rows that all visit them.
template <int R, class T>
inline void visit_block(const CachedHead& head, ScoreScale scale, const DecodeRow* const* rows,
                        DecodePartial* const* partials, int64_t first, int64_t from, int64_t to, ToPrefetch ahead) {
  HWY_ALIGN Scores scores[R];
  const int64_t stride = head.stride;
  const T* k = head.keys<T>(first);
  const T* v = head.values<T>(first);
  const Ahead next_values{static_cast<const char*>(ahead.values), head.v_step};
  const Ahead next_keys{static_cast<const char*>(ahead.keys), head.k_step};
  const float* q[R];
  float* out[R];
  for (int r = 0; r < R; ++r) {
    q[r] = rows[r]->q;
    out[r] = partials[r]->out;
  }
  int64_t i = from;
  for (; i + key_tile <= to; i += key_tile) {
    dots<R, key_tile>(q, row_after(k, i, head.k_step), head.k_step, stride, next_values.after<T>(i), scores, i);
  }
  for (; i < to; ++i) {
    dots<R, 1>(q, row_after(k, i, head.k_step), head.k_step, stride, next_values.after<T>(i), scores, i);
  }
  for (int r = 0; r < R; ++r) weigh(*rows[r], scale, first, from, to, stride, scores[r], *partials[r]);
  constexpr int most = lanes == 16 || R > 1 ? 4 : 8;  // number of vectors of sums that the registers hold for each row
  int64_t d = 0;
  const auto add = [&](auto vectors) HWY_ATTR {
    constexpr int n = decltype(vectors)::value;
    for (; d + n * lanes <= stride; d += n * lanes)
      add_values<R, n>(v, head.v_step, d, next_keys, scores, from, to, out);
  };
  add(std::integral_constant<int, most>());
  if constexpr (most > 4) add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 2>());
  add(std::integral_constant<int, 1>());
}

template <class T>
void visit(const CachedHead& head, ScoreScale scale, std::span<const DecodeRow> rows, int64_t begin, int64_t end,
           const void* next, DecodePartial* partials) {
  for (int64_t first = begin / cache_block * cache_block; first < end; first += cache_block) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + cache_block);
    const int64_t after = first + cache_block;
    ToPrefetch ahead{head.values<T>(first), after < end ? head.keys<T>(after) : next};
    const DecodeRow* whole[decode_rows_together];
    DecodePartial* into[decode_rows_together];
    int64_t count = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      const DecodeRow* row = &rows[r];
      DecodePartial* partial = &partials[r];
      const int64_t row_from = std::max(from, row->begin), row_to = std::min(to, row->end);
      if (row_from >= row_to) continue;
      if (row_from == from && row_to == to) {
        whole[count] = row;
        into[count++] = partial;
      } else {
        visit_block<1, T>(head, scale, &row, &partial, first, row_from - first, row_to - first, ahead);
        ahead = {};
      }
    }
    int64_t r = 0;
    for (; r + row_tile <= count; r += row_tile) {
      visit_block<row_tile, T>(head, scale, whole + r, into + r, first, from - first, to - first, ahead);
      ahead = {};
    }
    for (; r < count; ++r) {
      visit_block<1, T>(head, scale, whole + r, into + r, first, from - first, to - first, ahead);
      ahead = {};
    }
  }
}

void visit_range(const CachedHead& head, ScoreScale scale, std::span<const DecodeRow> rows, int64_t begin, int64_t end,
                 const void* next, DecodePartial* partials) {
  const FlushDenormals flush;
  switch (head.dtype) {
    case DType::float32:
      return visit<float>(head, scale, rows, begin, end, next, partials);
    case DType::q8_0:
      return visit<q8_block>(head, scale, rows, begin, end, next, partials);
    case DType::float16:
      return visit<float16>(head, scale, rows, begin, end, next, partials);
    default:
      visit<bfloat16>(head, scale, rows, begin, end, next, partials);
      for (size_t r = 0; r < rows.size(); ++r) arrange_pairs(partials[r].out, head.stride, true);
  }
}

void arrange_query(float* row, int64_t stride, DType dtype) {
  if (dtype == DType::bfloat16) arrange_pairs(row, stride, false);
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"

namespace alibi::kernels {

HWY_EXPORT(visit_range);
HWY_EXPORT(arrange_query);

void decode_arrange(float* row, int64_t stride, DType dtype) {
  core::prepare_dispatch();
  HWY_DYNAMIC_DISPATCH(arrange_query)(row, stride, dtype);
}

void decode_range(const CachedHead& head, ScoreScale scale, std::span<const DecodeRow> rows, int64_t begin, int64_t end,
                  const void* next, DecodePartial* partials) {
  if (begin >= end) return;
  core::prepare_dispatch();
  HWY_DYNAMIC_DISPATCH(visit_range)(head, scale, rows, begin, end, next, partials);
}

}  // namespace alibi::kernels
#endif
