// The forms of biases, compared with their formulas, and biases that calls share while a ReuseBiases exists.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "attention/biases.h"
#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// The bias of a head at a distance, as the documentation of AttentionOptions says.
double formula(const AttentionOptions& options, int64_t head, int64_t distance) {
  const auto h = static_cast<size_t>(head);
  const Tensor table = table_of(options);
  if (!table.defined()) {
    const auto& after = options.alibi_slopes_after.empty() ? options.alibi_slopes : options.alibi_slopes_after;
    if (distance == 0) return 0;
    return -static_cast<double>((distance > 0 ? options.alibi_slopes : after)[h]) *
           std::abs(static_cast<double>(distance));
  }
  int64_t row = 0;
  if (options.buckets) {
    row = relative_position_bucket(distance, options.causal, static_cast<int>(table.size(0)),
                                   options.buckets->max_distance);
  } else {
    const int64_t zero = options.causal ? 0 : table.size(0) / 2;
    row = std::clamp<int64_t>(zero + distance, 0, table.size(0) - 1);
  }
  return static_cast<double>(table.data<float>()[row * table.stride(0) + head * table.stride(1)]);
}

/// Every form, in both directions where it has two.
std::vector<AttentionOptions> forms() {
  constexpr int64_t heads = 3;
  std::vector<AttentionOptions> all = {
      {.alibi_slopes = {0.5f, 0, 3e-3f}},
      {.alibi_slopes = {0.5f, 0, 30}, .alibi_slopes_after = {0, 1e-5f, 0.25f}, .causal = false}};
  for (const bool causal : {true, false}) {
    for (const auto& [buckets, distance] :
         std::vector<std::pair<int64_t, int>>{{32, 128}, {4, 3}, {8, 300}, {40, 41}}) {
      all.push_back({.buckets = random_buckets(heads, 1, causal ? buckets : 2 * buckets, distance), .causal = causal});
    }
    for (const int64_t distances : {1, 2, 50, 500}) {
      all.push_back({.bias_by_distance = random_bias_by_distance(heads, distances, causal, 2), .causal = causal});
    }
  }
  for (size_t i = all.size(); i-- > 0;) {  // the same tables as columns of larger ones
    AttentionOptions sliced = all[i];
    if (!table_of(sliced).defined()) continue;
    Tensor wide({table_of(sliced).size(0), heads + 2});
    wide.slice(1, 1, heads + 1).copy_from(table_of(sliced));
    (sliced.buckets ? sliced.buckets->table : *sliced.bias_by_distance) = wide.slice(1, 1, heads + 1);
    all.push_back(sliced);
  }
  return all;
}

/// Calls visit(bias, value(distance), first distance, last one) for every form and head.
template <class Visit>
void for_each_bias(const Visit& visit) {
  const std::vector<AttentionOptions> all = forms();
  for (size_t i = 0; i < all.size(); ++i) {
    const Biases biases = make_biases("test", all[i], 1, 3);
    for (int64_t head = 0; head < 3; ++head) {
      SCOPED_TRACE(fmt::format("form {} head {} causal {}", i, head, all[i].causal));
      visit(
          biases.of(0, head), [&](int64_t distance) { return formula(all[i], head, distance); },
          all[i].causal ? int64_t{0} : int64_t{-600});
    }
  }
}

TEST(Bias, TilesAreTheFormula) {
  for_each_bias([](const Bias& bias, const auto& value, int64_t first) {
    for (const bool summarized : {false, true}) {  // a table that is read where it lies, and from its columns
      if (summarized) {
        EXPECT_GE(bias.magnitude(), 0);
      }
      for (int64_t begin = first; begin < 600; begin += 37) {
        for (const float factor : {1.0f, -0.25f}) {
          const int64_t origin = bias.slides() && begin > 0 ? begin + 20 : 0;
          float tile[50];
          bias.tile(begin, origin, 50, factor, tile);
          const double left_out = origin != 0 ? value(origin) : 0;
          for (int64_t i = 0; i < 50; ++i) {
            const double expected = (value(begin + i) - left_out) * std::numbers::log2e / static_cast<double>(factor);
            ASSERT_NEAR(static_cast<double>(tile[i]), expected, 1e-6 * std::abs(expected) + 1e-12) << begin + i;
            ASSERT_NEAR(bias.precise_at(begin + i), value(begin + i), 0) << begin + i;
            ASSERT_NEAR(static_cast<double>(bias.at(begin + i)), value(begin + i), 1e-7 * std::abs(value(begin + i)));
          }
        }
        for (const int64_t count : {1, 40}) {
          if (!bias.is_level(begin, begin + count)) continue;
          for (int64_t i = 1; i <= count; ++i) ASSERT_EQ(value(begin + i), value(begin)) << begin << " " << i;
        }
      }
    }
  });
}

TEST(Bias, NoKeyBeyondHasALargerBias) {
  for_each_bias([](const Bias& bias, const auto& value, int64_t first) {
    for (const Side side : {Side::before, Side::after}) {
      if (side == Side::after && first == 0) continue;
      const auto at = [&](int64_t distance) { return value(side == Side::before ? distance : -distance); };
      double largest = at(600), next = bias.beyond(side, 600);
      for (int64_t distance = 600; distance > 0; --distance) {
        largest = std::max(largest, at(distance));
        const double beyond = bias.beyond(side, distance);
        ASSERT_NEAR(beyond, largest, 1e-12 * std::abs(largest)) << distance;
        float lanes[3];
        bias.beyond(side, distance, side == Side::before ? 1 : -1, 3, lanes);
        const double second = bias.beyond(side, distance + (side == Side::before ? 1 : -1));
        ASSERT_NEAR(static_cast<double>(lanes[0]), beyond * std::numbers::log2e, 1e-6 * std::abs(beyond));
        if (side == Side::before || distance > 1) {
          ASSERT_NEAR(static_cast<double>(lanes[1]), second * std::numbers::log2e, 1e-6 * std::abs(second));
        }
        if (distance < 600) {
          ASSERT_LE(bias.fall(side, 1), beyond - next + 1e-9 * std::abs(beyond)) << distance;
        }
        next = beyond;
      }
      EXPECT_NEAR(bias.fall(side, 64), 64 * bias.fall(side, 1), 1e-12);
      if (bias.falls(side, 0.1f)) {
        EXPECT_LT(bias.beyond(side, 600), bias.rise());
      }
    }
  });
}

TEST(Bias, ATableFallsIfItsFarthestKeysWeighLessThanTheShare) {
  Tensor table({5, 2});  // distances -2 to 2; head 1 has an unknown value
  const float values[] = {-3, NAN, -1, 0, 0, 0, -4, -20, -9, -20};
  std::copy(std::begin(values), std::end(values), table.data<float>());
  const Biases biases = make_biases("test", {.bias_by_distance = table, .causal = false}, 1, 2);
  const Bias& head = biases.of(0, 0);
  EXPECT_TRUE(head.falls(Side::before, std::exp(-8.9f)));
  EXPECT_FALSE(head.falls(Side::before, std::exp(-9.1f)));
  EXPECT_TRUE(head.falls(Side::after, std::exp(-2.9f)));
  EXPECT_FALSE(head.falls(Side::after, std::exp(-3.1f)));
  EXPECT_FALSE(biases.of(0, 1).falls(Side::after, 0.5f));
}

TEST(Bias, TheHorizonIsWhereLittleIsLeft) {
  constexpr int64_t keys = 2000;
  for_each_bias([](const Bias& bias, const auto& value, int64_t) {
    for (const double log_weight : {-1.0, -8.0, -20.0}) {
      const double horizon = bias.horizon(Side::before, log_weight, keys);
      if (!(horizon < keys)) continue;
      double sum = 0;
      const auto begin = static_cast<int64_t>(std::ceil(std::max(horizon, 0.0)));
      for (int64_t d = begin; d < begin + keys; ++d) sum += std::exp(value(d));
      EXPECT_LE(std::log(sum), log_weight + 1e-9);
    }
  });
}

TEST(Bias, GradientsBelongToTheirParameters) {
  for_each_bias([](const Bias& bias, const auto&, int64_t first) {
    // A parameter's gradient is the sum of the derivatives of the biases, which are one or minus the distance.
    std::vector<double> dscores, sums(static_cast<size_t>(bias.parameters()), 0.0), single = sums;
    for (int64_t d = first; d < 600; ++d) dscores.push_back(std::sin(static_cast<double>(d)));
    bias.add_gradient(first, 0, dscores, sums.data());
    for (size_t i = 0; i < dscores.size(); ++i) {
      bias.add_gradient(first + static_cast<int64_t>(i), 0, std::span(dscores).subspan(i, 1), single.data());
    }
    EXPECT_EQ(sums, single);
    double all = 0, added = 0;
    for (size_t i = 0; i < dscores.size(); ++i) {
      all += bias.slides() ? -dscores[i] * std::abs(static_cast<double>(first + static_cast<int64_t>(i))) : dscores[i];
    }
    for (const double sum : sums) added += sum;
    if (!bias.slides() || first == 0) {
      EXPECT_NEAR(added, all, 1e-8);
    }
  });
}

TEST(ReuseBiases, EqualOptionsShareTheirBiases) {
  const std::vector<AttentionOptions> options = {{},
                                                 {.alibi_slopes = slopes(4)},
                                                 {.buckets = random_buckets(4, 1)},
                                                 {.bias_by_distance = random_tensor({9, 4}, 2)}};
  for (const AttentionOptions& one : options) {
    const ReuseBiases reuse;
    const auto first = biases_of("test", one, 2, 4);
    EXPECT_EQ(biases_of("test", AttentionOptions(one), 2, 4), first);
    EXPECT_NE(biases_of("test", one, 1, 4), first);
  }
}

TEST(ReuseBiases, OtherOptionsAndCallsOutsideDoNot) {
  const auto distinct = [](const AttentionOptions& one, const AttentionOptions& other) {
    const ReuseBiases reuse;
    const auto first = biases_of("test", one, 1, 4);
    const auto second = biases_of("test", other, 1, 4);
    EXPECT_NE(first, second);
    const Biases expected = make_biases("test", other, 1, 4);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t distance = other.causal ? 0 : -200; distance < 200; ++distance) {
        ASSERT_EQ(second->of(0, head).at(distance), expected.of(0, head).at(distance));
      }
    }
  };
  const BucketedBias buckets = random_buckets(4, 1);
  distinct({.alibi_slopes = {1, 2, 3, 4}}, {.alibi_slopes = {1, 2, 3, 5}});
  distinct({.alibi_slopes = {1, 2, 3, 4}, .causal = false},
           {.alibi_slopes = {1, 2, 3, 4}, .alibi_slopes_after = {4, 3, 2, 1}, .causal = false});
  distinct({.alibi_slopes = slopes(4)}, {.buckets = buckets});
  distinct({.buckets = buckets}, {.buckets = random_buckets(4, 2)});
  distinct({.buckets = buckets}, {.buckets = BucketedBias{buckets.table, 64}});
  distinct({.buckets = buckets}, {.buckets = buckets, .causal = false});
  distinct({.bias_by_distance = random_tensor({9, 4}, 2)}, {.bias_by_distance = random_tensor({9, 4}, 3)});
  // Without a ReuseBiases, a table that has changed is read again.
  AttentionOptions changing{.bias_by_distance = random_tensor({9, 4}, 2)};
  EXPECT_GT(biases_of("test", changing, 1, 4)->of(0, 0).magnitude(), 0);
  changing.bias_by_distance->fill(0);
  EXPECT_EQ(biases_of("test", changing, 1, 4)->of(0, 0).magnitude(), 0);
}

}  // namespace
}  // namespace alibi::kernels
