// What a training over ranks is predicted to cost.
#include "train/rank_plan.h"

#include <gtest/gtest.h>

#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

TrainOptions planned(int64_t shards) {
  TrainOptions options = test::short_run();
  options.shards = shards;
  return options;
}

const Link kFast{.bytes_per_second = 1e15};

TEST(RankPlan, MemoryAndTrafficFollowTheFormulas) {
  const LanguageModelConfig config = test::small_config();
  const int64_t parameters = config.parameter_count();
  for (const int ranks : {2, 4, 8}) {
    const RankPlan plan = plan_ranks(config, planned(8), ranks, kFast, 8);
    EXPECT_EQ(plan.optimizer, 8 * parameters / ranks);
    EXPECT_EQ(plan.sent, 8 * parameters * (ranks - 1) / ranks);
    EXPECT_EQ(plan.gradients, 4 * parameters * (ranks == 2 ? 3 : ranks == 4 ? 2 : 1));  // 4, 2, 1 shards
    EXPECT_NEAR(plan.compute, 8.0 / ranks, 1e-9);
    EXPECT_NEAR(plan.seconds(), 8.0 / ranks, 1e-3);
  }
  EXPECT_EQ(plan_ranks(config, planned(1), 1, kFast, 8).sent, 0);
}

TEST(RankPlan, UnevenShardsCostTimeAndTraffic) {
  const LanguageModelConfig config = test::small_config();
  const RankPlan even = plan_ranks(config, planned(6), 3, kFast, 6),
                 uneven = plan_ranks(config, planned(8), 3, kFast, 6);
  EXPECT_NEAR(even.compute, 2, 1e-9);
  EXPECT_NEAR(uneven.compute, 6.0 * 3 / 8, 1e-9);
  EXPECT_GT(uneven.sent, even.sent);
}

TEST(RankPlan, ASlowLinkAndItsDelayCostTime) {
  const LanguageModelConfig config = test::small_config();
  const auto bytes = static_cast<double>(config.parameter_count()) * 4 / 2;
  const RankPlan slow = plan_ranks(config, planned(2), 2, {.bytes_per_second = bytes, .delay = 0}, 1e-9);
  EXPECT_NEAR(slow.weights_exchange, 1, 1e-6);
  EXPECT_NEAR(slow.gradients_alone, 1, 1e-6);  // no backward pass hides it
  const RankPlan hidden = plan_ranks(config, planned(2), 2, {.bytes_per_second = bytes, .delay = 0}, 100);
  EXPECT_LT(hidden.gradients_alone, 0.5);
  EXPECT_GT(hidden.gradients_alone, 0);
  const RankPlan delayed = plan_ranks(config, planned(2), 2, {.bytes_per_second = bytes, .delay = 0.5}, 1e-9);
  EXPECT_NEAR(delayed.weights_exchange, 1 + 0.5 * 3, 1e-6);  // two layers and the rest
}

TEST(RankPlan, RefusesWhatCannotRun) {
  test::expect_error<UsageError>([] { plan_ranks(test::small_config(), planned(2), 3, kFast, 1); },
                                 "number of ranks is 3, expected 1 to the number of shards, 2");
  test::expect_error<UsageError>([] { plan_ranks(test::small_config(), planned(2), 2, {.bytes_per_second = 0}, 1); },
                                 "the link carries 0 bytes per second");
}

}  // namespace
}  // namespace alibi::training
