#include "bench/timing.h"

#include <gtest/gtest.h>

#include <string>

namespace alibi::bench {
namespace {

TEST(Timing, MedianAndLeast) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({5, 1, 4}), 4);
  EXPECT_EQ(median({4, 1, 2, 3}), 2);
  EXPECT_EQ(least({}), 0);
  EXPECT_EQ(least({2, 1, 3}), 1);
}

TEST(Timing, WorksTakeTurns) {
  std::string order;
  std::vector<Work> works;
  works.push_back({.run = [&] { order += 'a'; }, .prepare = [&] { order += '('; }});
  works.push_back({.run = [&] { order += 'b'; }});
  run_in_turns(works, {.seconds = 10, .max_runs = 3});
  EXPECT_EQ(order, "(ab(ab(ab");
  EXPECT_EQ(works[0].seconds.size(), 3u);
  EXPECT_EQ(works[1].seconds.size(), 3u);
}

TEST(Timing, RunsUntilTheTimeIsUsedUp) {
  std::vector<Work> works(1);
  works[0].run = [] {
    for (const double begin = now(); now() - begin < 1e-3;) {
    }
  };
  run_in_turns(works, {.seconds = 0.02, .min_runs = 1, .max_runs = 1000});
  EXPECT_GE(works[0].seconds.size(), 1u);
  EXPECT_LE(works[0].seconds.size(), 20u);
  EXPECT_GE(least(works[0].seconds), 1e-3);

  run_in_turns(works, {.seconds = 1e-4});  // its first run took more than that
  EXPECT_LE(works[0].seconds.size(), 20u);

  works[0] = {.run = [] {}};
  run_in_turns(works, {.seconds = 1, .max_runs = 5});
  EXPECT_EQ(works[0].seconds.size(), 5u);
}

}  // namespace
}  // namespace alibi::bench
