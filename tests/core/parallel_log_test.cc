#include "core/parallel_log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "alibi/error.h"
#include "alibi/runtime.h"
#include "testing.h"

namespace alibi::core {
namespace {

void three_tasks() {
  parallel_for(3, [](int64_t task) { std::this_thread::sleep_for(std::chrono::milliseconds(task)); });
}

TEST(ParallelLog, SectionsOfTheThreadWithTheirTasks) {
  for (const int count : {1, 2, 5}) {
    set_threads(count);
    const ParallelLog log;
    three_tasks();
    const int line = __LINE__ + 1;
    parallel_ranges(10, 4, [](int64_t, int64_t) {
      three_tasks();  // inside of a task: no section of its own
    });
    std::thread([] { three_tasks(); }).join();
    parallel_for(0, [](int64_t) {});

    ASSERT_EQ(log.sections().size(), 2) << count;
    const ParallelSection &first = log.sections()[0], &second = log.sections()[1];
    EXPECT_EQ(first.site.function, std::string("three_tasks"));
    EXPECT_EQ(second.site.line, line);
    ASSERT_EQ(first.seconds.size(), 3);
    ASSERT_EQ(second.seconds.size(), 3);
    EXPECT_GE(first.seconds[2], 2e-3);
    for (const double seconds : second.seconds) EXPECT_GE(seconds, 3e-3);
    for (const ParallelSection& section : log.sections()) {
      for (const double seconds : section.seconds) EXPECT_LE(seconds, section.end - section.begin);
    }
    EXPECT_LE(first.end, second.begin);
  }
}

TEST(ParallelLog, EndsWithItsScopeAndAfterExceptions) {
  set_threads(2);
  const ParallelLog outer;
  {
    const ParallelLog inner;
    EXPECT_EQ(test::message_of([] { parallel_for(4, [](int64_t) { throw Error("stop"); }); }), "stop");
    three_tasks();
    EXPECT_EQ(inner.sections().size(), 1) << "the one that ended";
  }
  EXPECT_TRUE(outer.sections().empty());
  three_tasks();
  EXPECT_EQ(outer.sections().size(), 1);
}

}  // namespace
}  // namespace alibi::core
