// The skip rule in decoding: which keys it drops, and that their weight is within its bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "alibi/runtime.h"
#include "attention/decode/cases.h"
#include "attention/decode/decode.h"

namespace alibi::test {
namespace {

/// Decodes with and without the skip rule and checks |difference| <= 2 tolerance max|v| (and rounding).
/// Returns the share of blocks visited.
double expect_bounded(const DecodeCase& c, const DecodeInputs& in, std::vector<float> slopes = {}) {
  SCOPED_TRACE(c.name());
  const KvCache cache = filled_cache(in.k, in.v);
  AttentionOptions options = c.options();
  if (!slopes.empty()) options.alibi_slopes = std::move(slopes);
  Tensor skipped = Tensor::empty(in.q.shape());
  AttentionState state;
  attention_decode(in.q, cache, options, skipped, &state);
  options.query_offset = c.plain_options().query_offset;
  options.tolerance = 0;
  std::vector<double> expected;
  attention_reference(in.q, in.k, in.v, options, expected);
  const double largest = std::max(1.0, max_abs(doubles(in.v)));
  EXPECT_TRUE(max_abs_diff(skipped, expected) <= (2 * static_cast<double>(c.tolerance) + 3e-6) * largest)
      << "differs by " << max_abs_diff(skipped, expected);
  EXPECT_LE(state.stats.blocks_visited, state.stats.blocks_total);
  EXPECT_GT(state.stats.blocks_visited, 0);
  return static_cast<double>(state.stats.blocks_visited) / static_cast<double>(state.stats.blocks_total);
}

DecodeCase long_case(float tolerance) {
  return {.keys = 12000, .heads = 8, .kv_heads = 8, .head_dim = 8, .tolerance = tolerance};
}

/// Random numbers for long_case, drawn once.
DecodeInputs long_inputs() {
  static const DecodeInputs drawn(long_case(0));
  DecodeInputs copy = drawn;
  copy.q = drawn.q.clone();
  copy.k = drawn.k.clone();
  copy.v = drawn.v.clone();
  return copy;
}

TEST(DecodeSkip, DropsMostOfALongCache) {
  for (const float tolerance : {0x1p-24f, 0x1p-11f, 1e-3f, 0.1f}) {
    const DecodeCase c = long_case(tolerance);
    EXPECT_LT(expect_bounded(c, long_inputs()), 0.2);
  }
}

TEST(DecodeSkip, ReachesNoFartherInALongerCache) {
  std::vector<int64_t> visited;
  const DecodeCase c = long_case(0x1p-24f);
  const DecodeInputs in = long_inputs();
  KvCache cache = filled_cache(in.k, in.v);
  for (int times = 0; times < 2; ++times) {
    if (times == 1) {
      for (int more = 0; more < 7; ++more) cache.append(in.k, in.v);
    }
    Tensor out = Tensor::empty(in.q.shape());
    AttentionState state;
    attention_decode(in.q, cache, c.options(), out, &state);
    visited.push_back(state.stats.blocks_visited);
  }
  EXPECT_LT(visited[1], visited[0] * 5 / 4);
}

TEST(DecodeSkip, AHugeKeyFarAwayIsFound) {
  const DecodeCase c = long_case(0x1p-24f);
  for (const int64_t at : {0, 63, 64, 5000, 11500}) {
    DecodeInputs in = long_inputs();
    // Its score outweighs the penalty of every head but the steepest.
    in.k.slice(1, at, at + 1).fill(0);
    Tensor key = in.k.slice(1, at, at + 1);
    key.copy_from(in.q);
    for (int64_t h = 0; h < 8; ++h) {
      for (int64_t d = 0; d < 8; ++d) key.data<float>()[h * key.stride(2) + d] *= 2000;
    }
    in.v.slice(1, at, at + 1).fill(9);
    expect_bounded(c, in);
  }
}

TEST(DecodeSkip, ASoftcapBoundsTheScores) {
  // Negative scores grow with a cap, so the bound must not be that of the scores without it. Large ones are bounded by
  // the cap.
  for (const float softcap : {0.25f, 2.0f, 20.0f}) {
    DecodeCase c = long_case(1e-3f);
    c.softcap = softcap;
    expect_bounded(c, long_inputs());
    DecodeInputs against = long_inputs();  // scores of about -8
    against.q.fill(1);
    for (int64_t i = 0; i < against.k.elements(); ++i)
      against.k.data<float>()[i] = -3 + 0.1f * against.k.data<float>()[i];
    expect_bounded(c, against);
    DecodeInputs large = long_inputs();
    large.q = random_tensor(large.q.shape(), 9, 50);
    EXPECT_LT(expect_bounded(c, large), 0.7) << "without a cap nearly all is visited";
  }
}

TEST(DecodeSkip, AKeyThatIsNotFiniteIsNotDroppedWithASoftcap) {
  DecodeCase c = long_case(1e-3f);
  c.softcap = 2;
  DecodeInputs in = long_inputs();
  in.k.slice(1, 5, 6).fill(std::numeric_limits<float>::quiet_NaN());
  const KvCache cache = filled_cache(in.k, in.v);
  Tensor out = Tensor::empty(in.q.shape());
  attention_decode(in.q, cache, c.options(), out);
  EXPECT_TRUE(std::isnan(max_abs(out.to_floats())));
}

TEST(DecodeSkip, AnEarlyLongKeyCostsLittle) {
  // With a bound by prefix maxima everything would be visited; the tree knows where the long key is.
  const DecodeCase c = long_case(0x1p-24f);
  DecodeInputs in = long_inputs();
  Tensor key = in.k.slice(1, 0, 1);
  for (int64_t i = 0; i < 8 * 8; ++i) key.data<float>()[i] *= 8;
  EXPECT_LT(expect_bounded(c, in, std::vector<float>(8, 0.01f)), 0.25);
}

TEST(DecodeSkip, WhatKeysHaveInCommonCostsNothing) {
  const DecodeCase c = long_case(0x1p-11f);
  DecodeInputs in = long_inputs();
  const double without = expect_bounded(c, in);
  for (int64_t i = 0; i < in.k.elements(); ++i) in.k.data<float>()[i] += 4;
  EXPECT_LT(expect_bounded(c, in), 1.2 * without);
}

TEST(DecodeSkip, HugeQueriesEqualScoresAndGrowingNorms) {
  const DecodeCase c = long_case(0x1p-24f);
  {
    DecodeInputs in = long_inputs();
    in.q = random_tensor(in.q.shape(), 9, 50);
    expect_bounded(c, in);
  }
  {
    DecodeInputs in = long_inputs();
    in.k.fill(0);
    EXPECT_LT(expect_bounded(c, in), 0.2);
  }
  {
    DecodeInputs in = long_inputs();  // norms grow with distance as fast as the penalty
    for (int64_t j = 0; j < c.keys; ++j) {
      for (int64_t i = 0; i < 8 * 8; ++i) {
        in.k.data<float>()[j * 8 * 8 + i] *= 1 + 0.002f * static_cast<float>(c.keys - j);
      }
    }
    expect_bounded(c, in);
  }
}

TEST(DecodeSkip, ManySmallSharesSpendOneBudget) {
  // Far keys whose norms make up for their distance. Each block of 64 weighs less than the budget, and all of them
  // together a hundred times as much.
  constexpr int64_t keys = 12000, near = 256;
  constexpr float slope = 1e-3f;
  for (const bool backwards : {true, false}) {
    DecodeCase c{.keys = keys, .heads = 1, .kv_heads = 1, .head_dim = 8, .tolerance = 1e-3f};
    c.causal = backwards;
    if (!backwards) c.offset = 1;
    DecodeInputs in(c);
    in.q.fill(1);
    in.k.fill(0);
    in.v.fill(0);
    for (int64_t distance = near; distance < keys - 1; ++distance) {
      const int64_t j = backwards ? keys - 1 - distance : 1 + distance;
      const float score = std::log(1e-3f) + slope * static_cast<float>(distance);  // weight 0.001
      in.k.slice(1, j, j + 1).fill(score / std::sqrt(8.0f));                       // scale 1 / sqrt(8), 8 products
      in.v.slice(1, j, j + 1).fill(1);
    }
    expect_bounded(c, in, {slope});
  }
}

/// Whether the rule drops a block of equal keys (every element `key`) for a query of `query`, if the budget is their
/// exact weight times 2^spare.
bool drops_block(float query, float key, float scale, float slope, double spare) {
  constexpr int64_t size = 16, keys = kernels::cache_block, position = 200;
  const Tensor k({1, keys, 1, size});
  Tensor filled = k.clone();
  filled.fill(key);
  KvCache cache(1, 1, size);
  cache.append(filled, filled);
  const std::vector<float> q(size, query), centre(size, key);
  const kernels::LinearBias linear(slope, slope, true);
  const kernels::HeadBias bias = {.form = &linear};
  const double m = static_cast<double>(slope),
               score = size * static_cast<double>(scale) * static_cast<double>(query) * static_cast<double>(key);
  double weight = 0;  // in units of the nearest one
  for (int64_t i = 0; i < keys; ++i) weight += std::exp(-m * static_cast<double>(i));
  const double max = std::numbers::log2e * (score - m * static_cast<double>(position - keys + 1));
  const kernels::DecodeSkip::Scores scores(q.data(), centre.data(), size, {scale, 0});
  kernels::DecodeSkip rule(core::state_of(cache), 0, scores, {scale, 0}, bias, position, max,
                           weight * std::exp2(spare));
  return rule.first_needed(0, keys) == keys;
}

TEST(DecodeSkip, KeepsAReserveForTheRoundingOfScores) {
  struct Reserve {
    const char* name;
    float query, key, scale, slope;
    double reserve;  ///< docs/explanation/skip-rule.md
  };
  const double score = 16 * 40 * 0.25 * std::numbers::log2e;
  for (const Reserve& r :
       {Reserve{"products", 20, 2, 0.25f, 1e-3f, score * (18 * 0x1p-23 + 0x1p-20)},
        Reserve{"biases", 0, 0, 0.25f, 3, 0x1p-20 * 3 * 64},
        Reserve{"denormal products", 0, 0, 1e37f, 0.1f, 1e37 * std::numbers::log2e * 16 * 0x1p-125}}) {
    EXPECT_FALSE(drops_block(r.query, r.key, r.scale, r.slope, 0.9 * r.reserve)) << r.name;
    EXPECT_TRUE(drops_block(r.query, r.key, r.scale, r.slope, 1.3 * r.reserve + 1e-6)) << r.name;
  }
}

TEST(DecodeSkip, KeysThatAreNotFiniteAreVisited) {
  const DecodeCase c = long_case(0x1p-24f);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    DecodeInputs in = long_inputs();
    in.k.slice(1, 70, 71).slice(3, 5, 6).fill(bad);
    const KvCache cache = filled_cache(in.k, in.v);
    Tensor out = Tensor::empty(in.q.shape());
    attention_decode(in.q, cache, c.options(), out);
    for (int64_t head = 0; head < 8; ++head) {
      const bool matters = std::isnan(bad) || in.q.slice(2, head, head + 1).slice(3, 5, 6).to_floats()[0] > 0;
      EXPECT_EQ(std::isnan(max_abs(out.slice(2, head, head + 1).to_floats())), matters) << head;
    }
  }
}

TEST(DecodeSkip, SlopesFromZeroToSteep) {
  const DecodeCase c = long_case(0x1p-24f);
  const DecodeInputs in = long_inputs();
  expect_bounded(c, in, {0, 0x1p-16f, 0x1p-10f, 1e-30f, 1, 4, 100, 1e30f});
  EXPECT_EQ(expect_bounded(c, in, std::vector<float>(8, 0.0f)), 1) << "without a slope every key is visited";
}

TEST(DecodeSkip, BothDirectionsAndTheWindow) {
  DecodeInputs in = long_inputs();
  in.q = random_tensor({1, 2, 8, 8}, 6);
  for (const int64_t offset : {1, 700, 6000, 11990, 12500}) {
    for (const int64_t window : {0, 3000}) {
      DecodeCase c = long_case(0x1p-20f);
      c.causal = false;
      c.offset = offset;
      c.window = window;
      c.queries = 2;
      if (offset - window >= c.keys) continue;
      const double visited = expect_bounded(c, in);
      EXPECT_LT(visited, window == 0 ? 0.4 : 1.0) << "both directions are cut short";
    }
  }
}

TEST(DecodeSkip, Denormals) {
  DecodeCase c = long_case(0x1p-24f);
  c.keys = 2000;
  DecodeInputs in(c, 1e-39f);
  expect_bounded(c, in);
  in.k = random_tensor(in.k.shape(), 4);
  expect_bounded(c, in);
}

TEST(DecodeSkip, GroupsReachAsFarAsTheirFlattestHead) {
  DecodeCase c = long_case(0x1p-24f);
  c.kv_heads = 1;
  DecodeInputs in = long_inputs();
  in.k = in.k.slice(2, 0, 1);
  in.v = in.v.slice(2, 0, 1);
  EXPECT_LT(expect_bounded(c, in), 0.7);
}

/// The largest share of a row's weight that keys before `begin` have. Every seventh row is looked at.
double share_before(const DecodeCase& c, const DecodeInputs& in, const AttentionOptions& options, int64_t begin) {
  const std::vector<double> q = doubles(in.q), k = doubles(in.k);
  const int64_t offset = options.query_offset.value_or(c.keys - c.queries);
  double largest = 0;
  for (int64_t row = 0; row < c.queries * c.heads; row += 7) {
    const int64_t position = offset + row / c.heads, head = row % c.heads, kv_head = head / (c.heads / c.kv_heads);
    std::vector<double> scores;
    for (int64_t j = 0; j < c.keys; ++j) {
      const int64_t distance = position - j;
      const bool unseen = (c.causal && distance < 0) || (c.window > 0 && distance >= c.window);
      double score = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        score += q[static_cast<size_t>(row * c.head_dim + d)] *
                 k[static_cast<size_t>((j * c.kv_heads + kv_head) * c.head_dim + d)];
      }
      score /= std::sqrt(static_cast<double>(c.head_dim));
      if (c.softcap > 0) score = static_cast<double>(c.softcap) * std::tanh(score / static_cast<double>(c.softcap));
      score -= static_cast<double>(options.alibi_slopes[static_cast<size_t>(head)]) *
               static_cast<double>(std::abs(distance));
      scores.push_back(unseen ? -HUGE_VAL : score);
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double before = 0, all = 0;
    for (int64_t j = 0; j < c.keys; ++j) {
      const double weight = std::exp(scores[static_cast<size_t>(j)] - max);
      all += weight;
      if (j < begin) before += weight;
    }
    largest = std::max(largest, before / all);
  }
  return largest;
}

int64_t first_needed_key(const KvCache& cache, const DecodeInputs& in, const AttentionOptions& options) {
  Tensor out = Tensor::empty(in.q.shape(), in.q.dtype());
  return kernels::first_needed_key(kernels::make_problem("test", in.q, cache.keys(), cache.values(), out, options),
                                   core::state_of(cache));
}

/// Checks that the first needed key leaves out at most half of the tolerance, and the result of cached_attention().
/// Returns that key.
int64_t expect_first_needed(const DecodeCase& c, const DecodeInputs& in) {
  SCOPED_TRACE(c.name());
  const KvCache cache = filled_cache(in.k, in.v);
  AttentionOptions options = c.options();
  const int64_t begin = first_needed_key(cache, in, options);
  EXPECT_LE(share_before(c, in, options, begin), static_cast<double>(c.tolerance) / 2);
  Tensor skipped = Tensor::empty(in.q.shape(), c.dtype), expected = Tensor::empty(in.q.shape(), c.dtype);
  cached_attention(in.q, cache, options, skipped);
  options.tolerance = 0;
  cached_attention(in.q, cache, options, expected);
  const double rounding = c.dtype == DType::float32 ? 3e-6 : 0x1p-7;
  const double largest = std::max(1.0, max_abs(doubles(in.v)));
  EXPECT_TRUE(max_abs_diff(skipped, doubles(expected)) <= (2 * static_cast<double>(c.tolerance) + rounding) * largest);
  return begin;
}

TEST(FirstNeededKey, LeavesOutAtMostHalfOfTheTolerance) {
  for (const float tolerance : {0x1p-24f, 1e-3f}) {
    DecodeCase c = long_case(tolerance);
    c.queries = 66;
    EXPECT_GT(expect_first_needed(c, DecodeInputs(c)), 2048) << "8 heads with slopes down to 1/256";
    DecodeCase other = c;
    other.kv_heads = 2;
    other.dtype = DType::bfloat16;
    EXPECT_GT(expect_first_needed(other, DecodeInputs(other)), 2048);
    other = c;
    other.softcap = 2;
    EXPECT_GT(expect_first_needed(other, DecodeInputs(other)), 2048);
    other = c;
    other.window = 700;
    EXPECT_GT(expect_first_needed(other, DecodeInputs(other)), 11000);
    other = c;
    other.causal = false;
    other.offset = 9000;
    EXPECT_GT(expect_first_needed(other, DecodeInputs(other)), 256);
    DecodeInputs growing(c);  // norms grow with distance as fast as the penalty
    for (int64_t i = 0; i < growing.k.elements(); ++i) {
      growing.k.data<float>()[i] *= 1 + 0.002f * static_cast<float>(c.keys - i / (8 * 8));
    }
    expect_first_needed(c, growing);
  }
}

TEST(FirstNeededKey, IsTheFirstWithoutABound) {
  DecodeCase c = long_case(0x1p-24f);
  c.queries = 70;
  const DecodeInputs in(c);
  const KvCache cache = filled_cache(in.k, in.v);
  AttentionOptions options = c.options();
  EXPECT_GT(first_needed_key(cache, in, options), 0);
  const auto changed = [&](const auto& change) {
    AttentionOptions other = options;
    change(other);
    return first_needed_key(cache, in, other);
  };
  EXPECT_EQ(changed([](AttentionOptions& o) { o.tolerance = 0; }), 0);
  EXPECT_EQ(changed([](AttentionOptions& o) { o.alibi_slopes[3] = 0; }), 0);
  EXPECT_EQ(changed([](AttentionOptions& o) { o.alibi_slopes.clear(); }), 0);
  EXPECT_EQ(changed([](AttentionOptions& o) { o.query_offset = 12000 - 69; }), 0) << "a query without a key";
  EXPECT_EQ(changed([](AttentionOptions& o) { o.query_offset = -1; }), 0);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor k = in.k.clone();
    k.slice(1, 300, 301).slice(2, 7, 8).slice(3, 5, 6).fill(bad);
    EXPECT_LE(first_needed_key(filled_cache(k, in.v), in, options), 300);
    k = in.k.clone();
    k.slice(1, 11990, 11991).slice(2, 7, 8).slice(3, 5, 6).fill(bad);
    EXPECT_EQ(first_needed_key(filled_cache(k, in.v), in, options), 0);
  }
}

}  // namespace
}  // namespace alibi::test
