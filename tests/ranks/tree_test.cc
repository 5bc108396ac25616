// Sums over the tree of shards have the same bits at any number of ranks.
#include "ranks/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "ranks/threads.h"

namespace alibi::ranks {
namespace {

constexpr int64_t kElements = 1000;

/// Values of such different sizes that every order of the sum has other bits.
std::vector<float> values_of(int shard) {
  const core::Random random(5, static_cast<uint64_t>(shard));
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::exp(4 * random.normal(i)) * random.normal(i + kElements);
  return values;
}

/// The definition: a node is the sum of its left and of its right half.
std::vector<float> expected_sum(Shards node) {
  if (node.count() == 1) return values_of(node.first);
  const int middle = middle_of(node);
  std::vector<float> left = expected_sum({node.first, middle}), right = expected_sum({middle, node.last});
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

std::vector<float> sum_over(int ranks, int shards) {
  std::vector<float> whole(kElements);
  run_as_threads(ranks, [&](Group& group) {
    // The sums of this rank's nodes.
    const Shards own = shards_of(group.rank(), ranks, shards);
    std::vector<Shards> leaves;
    std::vector<std::vector<float>> values;
    for (int shard = own.first; shard < own.last; ++shard) {
      leaves.push_back({shard, shard + 1});
      values.push_back(values_of(shard));
    }
    for (const auto& [left, right] : sums_of(leaves, own, shards)) add(values[right], values[left]);
    const std::vector<Shards> nodes = nodes_within(own, shards);
    // Parts of different sizes: the last rank owns nothing if there are several.
    std::vector<int64_t> begin(static_cast<size_t>(ranks) + 1, kElements), elements;
    for (int rank = 0; rank + 1 < ranks; ++rank)
      begin[static_cast<size_t>(rank)] = kElements * rank * rank / (ranks * ranks);
    if (ranks == 1) begin[0] = 0;
    if (ranks > 1) begin[static_cast<size_t>(ranks) - 1] = kElements;
    for (size_t rank = 0; rank + 1 < begin.size(); ++rank) elements.push_back(begin[rank + 1] - begin[rank]);
    const auto pack = [&](size_t node, int owner, std::span<float> to) {
      const std::vector<float>& from = values[static_cast<size_t>(nodes[node].first - own.first)];
      std::copy_n(from.begin() + begin[static_cast<size_t>(owner)], to.size(), to.begin());
    };
    const std::vector<float> sums = reduce_scatter(group, shards, {elements, pack});
    EXPECT_EQ(std::ssize(sums), elements[static_cast<size_t>(group.rank())]);
    std::copy(sums.begin(), sums.end(), whole.begin() + begin[static_cast<size_t>(group.rank())]);
  });
  return whole;
}

TEST(ShardTree, SumsHaveTheBitsOfTheDefinition) {
  for (const int shards : {1, 2, 3, 4, 5, 6, 8, 13}) {
    const std::vector<float> expected = expected_sum({0, shards});
    for (int ranks = 1; ranks <= shards; ++ranks) {
      EXPECT_EQ(sum_over(ranks, shards), expected) << ranks << " ranks, " << shards << " shards";
    }
  }
}

TEST(ShardTree, EveryShardBelongsToOneRankAndOneOfItsNodes) {
  for (int shards = 1; shards <= 20; ++shards) {
    for (int ranks = 1; ranks <= shards; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shards own = shards_of(rank, ranks, shards);
        EXPECT_GE(own.count(), shards / ranks);
        EXPECT_LE(own.count(), shards / ranks + 1);
        for (const Shards& node : nodes_within(own, shards)) {
          EXPECT_EQ(node.first, next);
          EXPECT_GT(node.count(), 0);
          next = node.last;
        }
        EXPECT_EQ(next, own.last);
      }
      EXPECT_EQ(next, shards);
    }
  }
}

TEST(ShardTree, RanksWithAPowerOfTwoOfShardsHaveOneNode) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const int each : {1, 2, 4}) {
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(nodes_within(shards_of(rank, ranks, ranks * each), ranks * each).size(), 1u)
            << rank << " of " << ranks << ", " << each << " shards each";
      }
    }
  }
}

}  // namespace
}  // namespace alibi::ranks
