#include <cmath>

#include "alibi/attention.h"
#include "alibi/error.h"
#include "testing.h"

namespace alibi::kernels {
namespace {

std::vector<double> log2_slopes(int heads, double bias_max = 8) {
  std::vector<double> result;
  for (const float slope : slopes(heads, bias_max)) result.push_back(std::log2(static_cast<double>(slope)));
  return result;
}

/// first, first - step, ... (count of them)
void append(std::vector<double>& to, double first, double step, int count) {
  for (int i = 0; i < count; ++i) to.push_back(first - step * i);
}

TEST(Slopes, GoldenTable) {
  struct Golden {
    int heads;
    double first, step;  // of the largest power of two
    int power;
    double rest, rest_step;
  };
  for (const Golden& g :
       {Golden{4, -2, 2, 4, 0, 0}, Golden{6, -2, 2, 4, -1, 2}, Golden{8, -1, 1, 8, 0, 0}, Golden{12, -1, 1, 8, -0.5, 1},
        Golden{16, -0.5, 0.5, 16, 0, 0}, Golden{20, -0.5, 0.5, 16, -0.25, 0.5}, Golden{24, -0.5, 0.5, 16, -0.25, 0.5},
        Golden{40, -0.25, 0.25, 32, -0.125, 0.25}, Golden{112, -0.125, 0.125, 64, -0.0625, 0.125}}) {
    std::vector<double> expected;
    append(expected, g.first, g.step, g.power);
    append(expected, g.rest, g.rest_step, g.heads - g.power);
    EXPECT_LE(test::max_abs_diff(log2_slopes(g.heads), expected), 1e-6) << g.heads << " heads";
  }
}

TEST(Slopes, PowersOfTwoAreExact) {
  EXPECT_EQ(slopes(8), (std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  EXPECT_EQ(slopes(1), std::vector<float>{0x1p-8f});
}

TEST(Slopes, BiasMaxScalesTheExponents) {
  std::vector<double> expected = log2_slopes(12);
  for (double& value : expected) value *= 2;
  EXPECT_LE(test::max_abs_diff(log2_slopes(12, 16), expected), 1e-6);
}

TEST(Slopes, ErrorsAreUsageErrors) {
  EXPECT_THROW(slopes(0), UsageError);
  EXPECT_THROW(slopes(-3), UsageError);
  EXPECT_THROW(slopes(8, 0), UsageError);
  EXPECT_THROW(slopes(8, -1), UsageError);
  EXPECT_THROW(slopes(8, std::nan("")), UsageError);
  EXPECT_THROW(slopes(8, INFINITY), UsageError);
}

TEST(RelativePositionBucket, CausalGolden) {
  // 32 buckets up to distance 128: d below 16, then 16 + floor(ln(d / 16) / ln(8) * 16), at most 31.
  const auto bucket = [](int64_t distance) { return relative_position_bucket(distance, true, 32, 128); };
  for (int d = 0; d < 16; ++d) EXPECT_EQ(bucket(d), d);
  EXPECT_EQ(bucket(16), 16);
  EXPECT_EQ(bucket(18), 16);
  EXPECT_EQ(bucket(19), 17);
  EXPECT_EQ(bucket(32), 21);
  EXPECT_EQ(bucket(64), 26);
  EXPECT_EQ(bucket(112), 30);
  EXPECT_EQ(bucket(113), 31);
  EXPECT_EQ(bucket(128), 31);
  EXPECT_EQ(bucket(int64_t{1} << 40), 31);
  EXPECT_EQ(bucket(-5), 0);  // not seen by causal attention
}

TEST(RelativePositionBucket, AnEdgeBelongsToTheUpperBucket) {
  // ln(20 / 5) / ln(160 / 5) * 5 is 2, which floating point makes a little less.
  EXPECT_EQ(relative_position_bucket(19, true, 10, 160), 6);
  EXPECT_EQ(relative_position_bucket(20, true, 10, 160), 7);
}

TEST(RelativePositionBucket, BidirectionalGolden) {
  const auto bucket = [](int64_t distance) { return relative_position_bucket(distance, false, 32, 128); };
  for (int d = 0; d < 8; ++d) EXPECT_EQ(bucket(d), d);
  for (int d = 1; d < 8; ++d) EXPECT_EQ(bucket(-d), 16 + d);
  EXPECT_EQ(bucket(8), 8);
  EXPECT_EQ(bucket(16), 10);  // ln(16 / 8) / ln(128 / 8) * 8 = 2 exactly: an edge belongs to the upper bucket
  EXPECT_EQ(bucket(32), 12);
  EXPECT_EQ(bucket(64), 14);
  EXPECT_EQ(bucket(127), 15);
  EXPECT_EQ(bucket(128), 15);
  EXPECT_EQ(bucket(-64), 30);
  EXPECT_EQ(bucket(-5000), 31);
}

}  // namespace
}  // namespace alibi::kernels
