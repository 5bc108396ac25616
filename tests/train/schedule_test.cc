#include <gtest/gtest.h>

#include "alibi/train.h"
#include "testing.h"

namespace alibi::training {
namespace {

Schedule run_of(ScheduleKind kind) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.peak = 2.0;
  schedule.warmup_steps = 10;
  schedule.steps = 110;
  schedule.final_fraction = 0.1;
  return schedule;
}

TEST(Schedule, WarmsUpAndFallsAsACosine) {
  const Schedule schedule = run_of(ScheduleKind::cosine);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(9), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(10), 2.0);
  EXPECT_NEAR(schedule.at(60), 2.0 * 0.55, 1e-12);
  EXPECT_NEAR(schedule.at(110), 0.2, 1e-12);
  EXPECT_NEAR(schedule.at(1000), 0.2, 1e-12);
}

TEST(Schedule, LinearAndConstant) {
  const Schedule linear = run_of(ScheduleKind::linear), constant = run_of(ScheduleKind::constant);
  for (const Schedule& schedule : {linear, constant}) {
    EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
    EXPECT_DOUBLE_EQ(schedule.at(10), 2.0);
  }
  EXPECT_NEAR(linear.at(60), 1.1, 1e-12);
  EXPECT_NEAR(linear.at(110), 0.2, 1e-12);
  EXPECT_NEAR(linear.at(1000), 0.2, 1e-12);
  EXPECT_EQ(constant.at(60), 2.0);
  EXPECT_EQ(constant.at(1000), 2.0);
}

// The values are those of fairseq's scheduler for the paper's runs on WikiText-103.
TEST(Schedule, OfThePaper) {
  const Schedule schedule = paper_recipe().schedule();
  EXPECT_EQ(schedule.steps, 286'000);
  EXPECT_DOUBLE_EQ(schedule.at(0), 1e-7);
  EXPECT_NEAR(schedule.at(8'000), 0.5, 1e-6);
  EXPECT_NEAR(schedule.at(15'999), 0.9999375, 1e-7);
  EXPECT_DOUBLE_EQ(schedule.at(16'000), 1.0);
  EXPECT_NEAR(schedule.at(50'000), 0.961385, 5e-7);
  EXPECT_NEAR(schedule.at(83'500), 0.853568, 5e-7);
  EXPECT_NEAR(schedule.at(151'000), 0.50005, 5e-7);
  EXPECT_NEAR(schedule.at(218'500), 0.146532, 5e-7);
  // The last update. fairseq would continue at 0.75 after it; we stay.
  EXPECT_NEAR(schedule.at(285'999), 1e-4, 1e-9);
  EXPECT_DOUBLE_EQ(schedule.at(286'000), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.at(1'000'000), 1e-4);
}

TEST(Schedule, FairseqWithoutAPeriodEndsWithTheRun) {
  Schedule schedule = run_of(ScheduleKind::fairseq);
  schedule.floor = 0.5;
  EXPECT_NEAR(schedule.at(60), 1.25, 1e-12);
  EXPECT_NEAR(schedule.at(110), 0.5, 1e-12);
}

TEST(TrainOptions, ThePapersRecipe) {
  const TrainOptions recipe = paper_recipe();
  recipe.validate();
  EXPECT_EQ(recipe.batch_tokens, 73'728);
  EXPECT_EQ(recipe.train_length, 512);
  EXPECT_EQ(recipe.batch_tokens % recipe.train_length, 0);
  EXPECT_EQ(recipe.optimizer, Optimizer::nag);
  EXPECT_EQ(recipe.clip, 0.1);
  EXPECT_EQ(recipe.weight_decay, 0);
}

TEST(TrainOptions, WarmupInUpdatesOrAsAFraction) {
  TrainOptions options;
  options.train_tokens = 1000;
  options.batch_tokens = 10;
  options.warmup_fraction = 0.25;
  EXPECT_EQ(options.schedule().warmup_steps, 25);
  options.train_tokens = 1010;
  EXPECT_EQ(options.schedule().warmup_steps, 26) << "25.25, rounded up";
  options.warmup_steps = 7;
  EXPECT_EQ(options.schedule().warmup_steps, 7);
  options.warmup_steps = 0;
  EXPECT_EQ(options.schedule().warmup_steps, 0);
}

TEST(TrainOptions, NamesGoBothWays) {
  for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::nag}) {
    EXPECT_EQ(optimizer_from(name_of(optimizer)), optimizer);
  }
  for (const ScheduleKind kind :
       {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::constant, ScheduleKind::fairseq}) {
    EXPECT_EQ(schedule_from(name_of(kind)), kind);
  }
  test::expect_error<UsageError>([] { optimizer_from("sgd"); }, "adamw, nag");
  test::expect_error<UsageError>([] { schedule_from("step"); }, "cosine, linear, constant, fairseq");
}

}  // namespace
}  // namespace alibi::training
