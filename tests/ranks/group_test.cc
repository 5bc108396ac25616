// Exchanges of a group of threads.
#include "ranks/group.h"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "ranks/threads.h"
#include "testing.h"

namespace alibi::ranks {
namespace {

TEST(RankGroup, MessagesArriveInTheOrderOfTheirTag) {
  run_as_threads(2, [](Group& group) {
    std::vector<double> first{1, 2}, second{3}, other{4, 5, 6};
    Transfers transfers;
    if (group.rank() == 0) {
      transfers.push_back(group.send(1, Tag::values, bytes_of(first)));
      transfers.push_back(group.send(1, Tag::weights, bytes_of(other), 7));
      transfers.push_back(group.send(1, Tag::values, bytes_of(second)));
      wait(transfers);
      EXPECT_EQ(group.bytes_sent(), 6 * 8);
      return;
    }
    std::vector<double> a(2), b(1), c(3);
    transfers.push_back(group.receive(0, Tag::values, bytes_of(a)));
    transfers.push_back(group.receive(0, Tag::values, bytes_of(b)));
    transfers.push_back(group.receive(0, Tag::weights, bytes_of(c), 7));
    wait(transfers);
    EXPECT_EQ(a, first);
    EXPECT_EQ(b, second);
    EXPECT_EQ(c, other);
  });
}

TEST(RankGroup, AllGatherAndBroadcast) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_as_threads(ranks, [](Group& group) {
      std::vector<double> expected(static_cast<size_t>(group.size()));
      std::iota(expected.begin(), expected.end(), 10.0);
      EXPECT_EQ(all_gather(group, 10.0 + group.rank()), expected);
      // Parts of different sizes; the part of rank 0 is empty.
      std::vector<std::vector<int>> parts;
      for (int rank = 0; rank < group.size(); ++rank) {
        parts.emplace_back(static_cast<size_t>(3 * rank), rank == group.rank() ? 100 + rank : -1);
      }
      std::vector<std::span<std::byte>> memory;
      for (std::vector<int>& part : parts) memory.push_back(bytes_of(part));
      all_gather(group, Tag::values, memory);
      for (int rank = 0; rank < group.size(); ++rank) {
        EXPECT_EQ(parts[static_cast<size_t>(rank)], std::vector<int>(static_cast<size_t>(3 * rank), 100 + rank));
      }
      std::vector<int> data{group.rank() == 0 ? 7 : 0, group.rank() == 0 ? 8 : 0};
      broadcast(group, Tag::control, bytes_of(data));
      EXPECT_EQ(data, (std::vector<int>{7, 8}));
    });
  }
}

TEST(RankGroup, NobodyPassesABarrierBeforeAllHaveReachedIt) {
  std::atomic<int> arrived{0};
  run_as_threads(4, [&](Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      barrier(group);
      EXPECT_GE(arrived.load(), 4 * round);
      barrier(group);
    }
  });
}

TEST(RankGroup, AFailingRankEndsTheOthers) {
  test::expect_error(
      [] {
        run_as_threads(3, [](Group& group) {
          if (group.rank() == 1) throw Error("the disk of rank 1 is full");
          barrier(group);
        });
      },
      {"the disk of rank 1 is full"});
}

TEST(RankGroup, ValuesThatDifferAreNamedOnEveryRank) {
  for (const int ranks : {1, 2, 4}) {
    run_as_threads(ranks, [](Group& group) { check_same(group, {{"seed", "1"}, {"empty", ""}}); });
  }
  std::atomic<int> refused{0};
  run_as_threads(4, [&](Group& group) {
    NamedValues values{{"seed", "1"}, {"clip", "0.5"}};
    if (group.rank() == 2) values = {{"seed", "7"}, {"clip", "0.5"}, {"floor", "0.25"}};
    if (group.rank() == 3) values.pop_back();
    try {
      check_same(group, values);
    } catch (const UsageError& error) {
      EXPECT_EQ(
          std::string(error.what()),
          "[ranks] rank 2 (and 1 more) differs from rank 0: floor is 0.25, on rank 0 it is not set; seed is 7, on "
          "rank 0 it is 1. Give all ranks the same options and the same files");
      ++refused;
    }
  });
  EXPECT_EQ(refused.load(), 4);
}

TEST(RankGroup, RefusesMessagesOfAnotherSizeAndToItself) {
  test::expect_error(
      [] {
        run_as_threads(2, [](Group& group) {
          std::vector<double> data(group.rank() == 0 ? 1 : 2);
          Transfers transfers;
          transfers.push_back(group.rank() == 0 ? group.send(1, Tag::values, bytes_of(data))
                                                : group.receive(0, Tag::values, bytes_of(data)));
          wait(transfers);
        });
      },
      {"a message has 8 bytes, expected 16"});
  test::expect_error(
      [] {
        run_as_threads(2, [](Group& group) {
          std::vector<double> data(1);
          group.send(group.rank(), Tag::values, bytes_of(data));
        });
      },
      {"expected another rank of 2"});
}

}  // namespace
}  // namespace alibi::ranks
