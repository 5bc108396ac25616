#include "attention/skip/far_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing.h"

namespace alibi::kernels {
namespace {

constexpr float closed = std::numeric_limits<float>::infinity();

/// A random text: some keys are outliers, and all share a common part.
struct Text {
  AttentionOptions options;
  int64_t heads, kv_heads, keys, head_dim = 16;
  Tensor q, k, v;

  explicit Text(uint64_t seed) {
    const core::Random random(seed);
    auto below = [&, at = uint64_t{0}](uint64_t limit) mutable {
      return static_cast<int64_t>(random.below(at++, limit));
    };
    kv_heads = 1 + below(2);
    heads = kv_heads * (1 + below(2));
    keys = 3000 + below(5000);
    options.causal = below(3) == 0;
    options.tolerance = below(2) == 0 ? 0x1p-24f : 0x1p-11f;
    for (int64_t head = 0; head < heads; ++head) {
      options.alibi_slopes.push_back(std::exp2(-static_cast<float>(1 + below(7))));
    }
    if (!options.causal && below(2) == 0) {
      for (int64_t head = 0; head < heads; ++head) {
        options.alibi_slopes_after.push_back(below(3) == 0 ? closed : std::exp2(-static_cast<float>(1 + below(7))));
      }
    }
    const DType dtype = below(3) == 0 ? DType::bfloat16 : DType::float32;
    const float scale = static_cast<float>(below(4));
    q = test::random_tensor({1, keys, heads, head_dim}, seed + 1, scale, dtype);
    k = test::random_tensor({1, keys, kv_heads, head_dim}, seed + 2, 1);
    v = test::random_tensor({1, keys, kv_heads, head_dim}, seed + 3, 1, dtype);
    const int64_t outlier = below(static_cast<uint64_t>(keys));
    for (int64_t i = 0; i < k.elements(); ++i) {
      float& x = k.data<float>()[i];
      if (i / (kv_heads * head_dim) == outlier) x *= 6;
      x += 2;
    }
    k = k.to(dtype);
  }
};

/// Largest sum of the weights of the keys outside of the range relative to those in it, over the queries.
double weight_outside(const Text& text, int64_t first, int64_t queries, const Range& range) {
  const std::vector<double> q = test::doubles(text.q), k = test::doubles(text.k);
  const std::vector<float>& after =
      text.options.alibi_slopes_after.empty() ? text.options.alibi_slopes : text.options.alibi_slopes_after;
  double worst = 0;
  for (int64_t i = first; i < first + queries; i += 23) {
    for (int64_t head = 0; head < text.heads; ++head) {
      double inside = 0, outside = 0;
      const int64_t kv_head = head / (text.heads / text.kv_heads);
      for (int64_t j = 0; j < text.keys; ++j) {
        if (j > i && (text.options.causal || after[static_cast<size_t>(head)] == closed)) continue;
        if (j < i && text.options.alibi_slopes[static_cast<size_t>(head)] == closed) continue;
        double score = 0;
        for (int64_t d = 0; d < text.head_dim; ++d) {
          score += q[static_cast<size_t>((i * text.heads + head) * text.head_dim + d)] *
                   k[static_cast<size_t>((j * text.kv_heads + kv_head) * text.head_dim + d)];
        }
        const auto slope = static_cast<double>((j > i ? after : text.options.alibi_slopes)[static_cast<size_t>(head)]);
        const double bias = i == j ? 0 : slope * std::abs(static_cast<double>(i - j));
        (j >= range.begin && j < range.end ? inside : outside) += std::exp(score / 4 - bias);
      }
      worst = std::max(worst, outside / inside);
    }
  }
  return worst;
}

TEST(FarKeys, OthersWeighLessThanHalfOfTheTolerance) {
  int64_t needed_keys = 0, all_keys = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Text text(100 * seed);
    FarKeys far(text.options, text.heads, text.kv_heads, text.head_dim);
    for (int64_t at = 0; at < text.keys; at += 1024) far.add(text.k.slice(1, at, std::min(text.keys, at + 1024)));
    for (const int64_t first : {int64_t{0}, int64_t{1024}, text.keys / 512 * 512 - 512}) {
      const int64_t last = std::min(text.keys, first + 700);
      const Tensor q = text.q.slice(1, first, last);
      Range range = far.expected({first, last}), needed;
      while (true) {
        AttentionState state;
        attention(q, text.k.slice(1, range.begin, range.end), text.v.slice(1, range.begin, range.end),
                  far.options_within(first, range), &state);
        needed = far.needed(q, first, state.lse);
        if (range.begin <= needed.begin && needed.end <= range.end) break;
        range = {std::min(range.begin, needed.begin), std::max(range.end, needed.end)};
      }
      EXPECT_LE(weight_outside(text, first, last - first, needed), static_cast<double>(text.options.tolerance) / 2)
          << fmt::format("seed {} queries from {}: keys {} to {} of {}", seed, first, needed.begin, needed.end,
                         text.keys);
      EXPECT_TRUE(needed.begin <= first && needed.end >= last);
      needed_keys += needed.size();
      all_keys += text.keys;
    }
  }
  EXPECT_LT(needed_keys, 3 * all_keys / 4);  // the bound is of use
}

TEST(FarKeys, WithoutAFiniteBoundAllKeysAreNeeded) {
  Text text(7);
  text.options.causal = false;
  text.options.alibi_slopes.assign(static_cast<size_t>(text.heads), 1.0f);
  text.options.alibi_slopes_after.clear();
  text.k = text.k.to(DType::float32);
  text.q = text.q.to(DType::float32);
  text.k.data<float>()[2 * text.kv_heads * text.head_dim] = std::numeric_limits<float>::quiet_NaN();
  text.k.data<float>()[(text.keys - 1) * text.kv_heads * text.head_dim] = std::numeric_limits<float>::infinity();
  FarKeys far(text.options, text.heads, text.kv_heads, text.head_dim);
  far.add(text.k);
  const Tensor lse({1, text.heads, 512});
  const Range needed = far.needed(text.q.slice(1, 1024, 1536), 1024, lse);
  EXPECT_EQ(needed.begin, 0);
  EXPECT_EQ(needed.end, text.keys);
}

TEST(FarKeys, NeedATolerance) {
  AttentionOptions options{.alibi_slopes = {0.5f, 0.25f}, .causal = false, .tolerance = 0x1p-24f};
  EXPECT_TRUE(FarKeys::are_bounded(options));
  options.alibi_slopes_after = {0.5f, 0.0f};
  EXPECT_FALSE(FarKeys::are_bounded(options));
  options.alibi_slopes_after = {0.5f, closed};
  EXPECT_TRUE(FarKeys::are_bounded(options));
  options.tolerance = 0;
  EXPECT_FALSE(FarKeys::are_bounded(options));
  test::expect_error([&] { FarKeys(options, 2, 2, 16); }, "expected a tolerance");
  EXPECT_FALSE(FarKeys::are_bounded({.tolerance = 0x1p-24f}));
}

}  // namespace
}  // namespace alibi::kernels
