// A cache in q8_0: attention over what it stores, and bounds on what its rounding changes.
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/kv_cache.h"
#include "attention/decode/cases.h"
#include "attention/decode/q8_rows.h"
#include "core/random.h"
#include "testing.h"

namespace alibi::test {
namespace {

KvCache q8_cache(const Tensor& k, const Tensor& v) {
  KvCache cache(k.size(0), k.size(2), k.size(3), DType::q8_0);
  for (const int64_t end : {k.size(1) / 2, k.size(1) / 2 + 1, k.size(1)}) {
    cache.append(k.slice(1, cache.length(), end), v.slice(1, cache.length(), end));
  }
  return cache;
}

TEST(Q8Cache, StoresTheNearestNumbers) {
  const Tensor k = random_tensor({2, 100, 3, 40}, 1, 5), v = random_tensor({2, 100, 3, 40}, 2, 1e-3f);
  const KvCache cache = q8_cache(k, v);
  EXPECT_LT(cache.bytes(), KvCache(2, 3, 40).bytes() + 2 * 2 * 3 * cache.capacity() * 68 + 5000);
  for (const auto& [given, kept] : {std::pair{k, cache.keys()}, {v, cache.values()}}) {
    ASSERT_EQ(kept.shape(), given.shape());
    const std::vector<double> exact = doubles(given), stored = doubles(kept);
    for (size_t row = 0; row < exact.size(); row += 40) {
      for (size_t block = row; block < row + 40; block += 32) {
        const size_t end = std::min(block + 32, row + 40);
        double largest = 0;
        for (size_t i = block; i < end; ++i) largest = std::max(largest, std::abs(exact[i]));
        // Half a step, and the rounding of the scale to float16, which 127 steps repeat.
        for (size_t i = block; i < end; ++i) {
          ASSERT_TRUE(std::abs(stored[i] - exact[i]) <= largest / 127 * (0.5 + 127 * 0x1p-11) + 0x1p-25);
        }
      }
    }
  }
}

TEST(Q8Cache, DecodingIsAttentionOverWhatItStores) {
  for_each_isa([] {
    for (const int64_t dim : {1, 20, 64, 136}) {
      for (const int64_t queries : {1, 3}) {
        for (const int64_t keys : {1, 65, 300}) {
          for (const Bias bias : {Bias::linear, Bias::none, Bias::by_distance}) {
            const DecodeCase c{.batch = 2,
                               .keys = keys,
                               .queries = std::min(queries, keys),
                               .heads = 6,
                               .kv_heads = 2,
                               .head_dim = dim,
                               .bias = bias};
            SCOPED_TRACE(c.name());
            const DecodeInputs in(c);
            const KvCache cache = q8_cache(in.k, in.v);
            std::vector<double> expected, lse;
            attention_reference(in.q, cache.keys(), cache.values(), c.plain_options(), expected, &lse);
            for (const float tolerance : {0.0f, 0x1p-24f}) {
              AttentionOptions options = c.options();
              options.tolerance = tolerance;
              Tensor out = Tensor::empty(in.q.shape());
              AttentionState state;
              attention_decode(in.q, cache, options, out, &state);
              EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6 * std::max(1.0, max_abs(expected)));
              EXPECT_TRUE(max_abs_diff(state.lse, lse) <= 3e-6 * std::max(1.0, max_abs(lse)));
            }
            Tensor out = Tensor::empty(in.q.shape());
            cached_attention(in.q, cache, c.options(), out);
            EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6 * std::max(1.0, max_abs(expected)));
          }
        }
      }
    }
  });
}

TEST(Q8Cache, SameBitsAtAnyNumberOfThreadsAndInForksAndAfterTruncation) {
  const DecodeCase c{.batch = 1, .keys = 900, .heads = 4, .kv_heads = 2, .head_dim = 48, .tolerance = 0x1p-24f};
  const DecodeInputs in(c);
  const KvCache cache = q8_cache(in.k, in.v);
  const Tensor expected = attention_decode(in.q, cache, c.options());
  expect_same_bits_at_any_thread_count(
      [&] { return std::vector<Tensor>{attention_decode(in.q, q8_cache(in.k, in.v), c.options())}; });
  KvCache at_once(1, 2, 48, DType::q8_0);
  at_once.append(in.k, in.v);
  KvCache fork = cache.fork(), copy = cache.clone();
  EXPECT_TRUE(same_bits(attention_decode(in.q, at_once, c.options()), expected));
  EXPECT_TRUE(same_bits(attention_decode(in.q, fork, c.options()), expected));
  for (KvCache* changed : {&fork, &copy}) {
    changed->truncate(500);
    changed->append(in.k.slice(1, 500, 900), in.v.slice(1, 500, 900));
    EXPECT_TRUE(same_bits(attention_decode(in.q, *changed, c.options()), expected));
  }
}

/// The bound holds for the exact keys in float64: of the log-sum-exp, and of each weight before it is normalized, so
/// that the output with the stored values is within exp(2 bound) - 1 of the largest value.
TEST(Q8Cache, TheErrorIsWithinItsBound) {
  double closest = 1e300;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const core::Random random(seed, 5);
    const auto draw = [&](uint64_t at, int64_t most) {
      return 1 + static_cast<int64_t>(random.uniform(at) * static_cast<float>(most));
    };
    const DecodeCase c{.batch = draw(0, 2),
                       .keys = 4 + draw(1, 400),
                       .queries = draw(2, 3),
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = draw(3, 130),
                       .bias = seed % 3 == 0 ? Bias::none : Bias::linear};
    SCOPED_TRACE(c.name());
    const DecodeInputs in(c, seed % 2 == 0 ? 0.3f : 3.0f);
    const KvCache cache = q8_cache(in.k, in.v);
    AttentionState state;
    const Tensor out = attention_decode(in.q, cache, c.options(), &state);
    std::vector<double> expected, lse;
    attention_reference(in.q, in.k, cache.values(), c.plain_options(), expected, &lse);
    const double bound = score_error(in.q, cache, c.options());
    ASSERT_TRUE(bound > 0);
    EXPECT_TRUE(max_abs_diff(state.lse, lse) <= bound + 3e-6 * std::max(1.0, max_abs(lse)));
    EXPECT_TRUE(max_abs_diff(out, expected) <= std::expm1(2 * bound) * 2 * max_abs(doubles(in.v)) + 1e-5);
    closest = std::min(closest, bound / std::max(1e-300, max_abs_diff(state.lse, lse)));
  }
  EXPECT_LT(closest, 100) << "the bound is worth something";
  const Tensor q = random_tensor({1, 1, 2, 16}, 1);
  EXPECT_EQ(score_error(q, KvCache(1, 2, 16), {}), 0);
  EXPECT_EQ(score_error(q, KvCache(1, 2, 16, DType::q8_0), {}), 0);
}

/// The bound of the weight of evicted keys includes the rounding of the cache: it holds for the keys that were given.
TEST(Q8Cache, TheBoundOfEvictedKeysHoldsForTheExactKeys) {
  for (const float scale : {0.0f, 0.3f, 1.0f, 4.0f, 20.0f}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      constexpr int64_t keys = 500, size = 24, head_count = 4;
      const Tensor k = random_tensor({1, keys, head_count, size}, seed + 1, scale),
                   q = random_tensor({1, 2, head_count, size}, seed + 2);
      KvCache cache(1, head_count, size, DType::q8_0);
      cache.append(k, k);
      cache.evict(std::vector<int64_t>{448, 384, 128, 64}, 10);
      const AttentionOptions options{.alibi_slopes = slopes(head_count), .query_offset = keys - 2};
      AttentionState state;
      attention_decode(q, cache, options, &state);
      double worst = 0;
      for (int64_t h = 0; h < head_count; ++h) {
        AttentionOptions one = options;
        one.alibi_slopes = {options.alibi_slopes[static_cast<size_t>(h)]};
        const auto lse_from = [&](int64_t begin) {
          one.query_offset = keys - 2 - begin;
          std::vector<double> out, lse;
          const Tensor part = k.slice(1, begin, keys).slice(2, h, h + 1).clone();
          attention_reference(q.slice(2, h, h + 1).clone(), part, part, one, out, &lse);
          return lse;
        };
        const std::vector<double> kept = lse_from(cache.begin(h)), whole = lse_from(0);
        for (size_t i = 0; i < kept.size(); ++i) worst = std::max(worst, -std::expm1(kept[i] - whole[i]));
      }
      const double bound = evicted_share(q, cache, options, state.lse);
      EXPECT_GE(bound, worst) << "scale " << scale;
      EXPECT_LE(bound, 1.0);
    }
  }
}

TEST(Q8Cache, NumbersThatAreNotFiniteStayVisible) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    Tensor k = random_tensor({1, 300, 1, 32}, 1);
    k.data<float>()[5] = bad;
    KvCache cache(1, 1, 32, DType::q8_0);
    cache.append(k, random_tensor({1, 300, 1, 32}, 2));
    const Tensor q = random_tensor({1, 1, 1, 32}, 3);
    const AttentionOptions options{.alibi_slopes = {0.5f}, .tolerance = 0x1p-11f};
    EXPECT_EQ(score_error(q, cache, options), std::numeric_limits<double>::infinity());
    for (const double x : doubles(attention_decode(q, cache, options))) EXPECT_TRUE(std::isnan(x));
    if (!std::isnan(bad)) continue;
    KvCache halves(1, 1, 32, DType::float16);
    halves.append(k, random_tensor({1, 300, 1, 32}, 2));
    for (const double x : doubles(attention_decode(q, halves, options))) EXPECT_TRUE(std::isnan(x));
  }
}

}  // namespace
}  // namespace alibi::test
