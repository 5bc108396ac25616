#include "compare/defaults.h"

#include <gtest/gtest.h>

namespace alibi::comparison {
namespace {

TEST(CompareDefaults, LengthsAreMultiplesOfTheTrainingLengthRoundedToTokens) {
  EXPECT_EQ(lengths_to_measure(128), (std::vector<int64_t>{128, 160, 192, 256, 384, 512, 768, 1024, 2048}));
  EXPECT_EQ(lengths_to_measure(10), (std::vector<int64_t>{10, 13, 15, 20, 30, 40, 60, 80, 160}));
  EXPECT_EQ(lengths_to_measure(1), (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 16})) << "none twice";
}

TEST(CompareDefaults, SixteenBlocksOfTheLongestLengthAreScored) {
  EXPECT_EQ(tokens_to_score("tiny", 2048), 65536);
  EXPECT_EQ(tokens_to_score("tiny", 20000), 320000);
  EXPECT_EQ(tokens_to_score("small", 2048), 262144);
  EXPECT_EQ(tokens_to_score("wikitext103", 2048), 262144);
  EXPECT_EQ(tokens_to_score("base", 2048), 1048576);
  EXPECT_EQ(tokens_to_score("base", 300000), 4800000);
}

}  // namespace
}  // namespace alibi::comparison
