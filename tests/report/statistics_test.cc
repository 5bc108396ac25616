#include "report/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/random.h"

namespace alibi::report {
namespace {

TEST(Statistics, MeanDeviationAndInterval) {
  const double values[] = {2.1, 1.9, 2.4};
  const Estimate found = estimate(values);
  EXPECT_NEAR(found.mean, 2.1333333333333333, 1e-12);
  EXPECT_NEAR(found.deviation, 0.25166114784235832, 1e-12);
  // 4.302652729749464 * 0.25166114784235832 / sqrt(3)
  EXPECT_NEAR(found.interval.high - found.mean, 0.625164, 1e-5);
  EXPECT_NEAR(found.mean - found.interval.low, 0.625164, 1e-5);
  const double one[] = {2.1};
  EXPECT_TRUE(std::isnan(estimate(one).interval.low));
  EXPECT_TRUE(std::isnan(estimate(one).deviation));
}

TEST(Statistics, TheBootstrapFindsTheSpreadOfTheMean) {
  // 400 normal values: the mean's standard error is 1/20, and 95 % of it +-1.96 of these.
  const core::Random random(3);
  std::vector<double> values, weights;
  for (uint64_t i = 0; i < 400; ++i) {
    values.push_back(10 + static_cast<double>(random.normal(i)));
    weights.push_back(1);
  }
  const Interval found = bootstrap(values, weights);
  const double mean = mean_of(values);
  EXPECT_NEAR(found.high - mean, 1.96 / 20, 0.01);
  EXPECT_NEAR(mean - found.low, 1.96 / 20, 0.01);
  // Twice the weight is half the mean; a constant has no spread.
  for (double& weight : weights) weight = 2;
  EXPECT_NEAR(bootstrap(values, weights).high, found.high / 2, 1e-12);
  const std::vector<double> same(20, 3.0), ones(20, 1.0);
  EXPECT_EQ(bootstrap(same, ones).low, 3);
  EXPECT_EQ(bootstrap(same, ones).high, 3);
  const std::vector<double> few(7, 3.0);
  EXPECT_TRUE(std::isnan(bootstrap(few, few).low));
}

TEST(Statistics, TheIntervalsOfMeansHoldTheTruthAsOftenAsTheySay) {
  const core::Random random(4);
  int holds = 0;
  constexpr int experiments = 2000;
  for (int experiment = 0; experiment < experiments; ++experiment) {
    double values[4];
    for (uint64_t i = 0; i < 4; ++i) {
      values[i] = static_cast<double>(random.normal(4 * static_cast<uint64_t>(experiment) + i));
    }
    const Interval interval = estimate(values).interval;
    holds += interval.low <= 0 && 0 <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(holds) / experiments, 0.95, 0.02);
}

}  // namespace
}  // namespace alibi::report
