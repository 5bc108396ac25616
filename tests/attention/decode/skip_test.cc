// The skip rule in decoding: which keys it drops, and that their weight is within its bound.
#include <gtest/gtest.h>

#include <cmath>
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
  kernels::DecodeRow row{.q = q.data(), .bias = {}, .position = position, .begin = 0, .end = keys};
  row.bias.slope_before = slope;
  const double m = static_cast<double>(slope),
               score = size * static_cast<double>(scale) * static_cast<double>(query) * static_cast<double>(key);
  double weight = 0;  // in units of the nearest one
  for (int64_t i = 0; i < keys; ++i) weight += std::exp(-m * static_cast<double>(i));
  const double max = std::numbers::log2e * (score - m * static_cast<double>(position - keys + 1));
  kernels::DecodeSkip rule(core::state_of(cache), 0, centre.data(), {scale, 0}, row, max, weight * std::exp2(spare));
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

}  // namespace
}  // namespace alibi::test
