// Biases that calls share while a ReuseBiases exists.
#include "attention/bias.h"

#include <gtest/gtest.h>

#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

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
    EXPECT_EQ(second->table, make_biases("test", other, 1, 4).table);
    EXPECT_EQ(second->slopes_before, make_biases("test", other, 1, 4).slopes_before);
    EXPECT_EQ(second->slopes_after, make_biases("test", other, 1, 4).slopes_after);
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
  const auto before = biases_of("test", changing, 1, 4);
  changing.bias_by_distance->fill(0);
  EXPECT_EQ(biases_of("test", changing, 1, 4)->largest, std::vector<float>(4, 0.0f));
  EXPECT_NE(before->largest, std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace alibi::kernels
