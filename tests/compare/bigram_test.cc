#include "compare/bigram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace alibi::comparison {
namespace {

TEST(Bigram, ProbabilitiesAreThoseOfTheDiscountedCounts) {
  // Pairs of 0 1 0 1 0 2: 01 twice, 10 twice, 02 once; tokens 0, 1, 2: 3, 2, 1 times.
  const std::vector<int32_t> train = {0, 1, 0, 1, 0, 2}, held_out = {0, 1, 2};
  const auto single = [](double times) { return (times + 0.5) / (6 + 0.5 * 4); };
  const double first = single(3);                               // nothing before it
  const double second = (2 - 0.75 + 0.75 * 2 * single(2)) / 3;  // after 0 come 1 and 2
  const double third = (0 + 0.75 * 1 * single(1)) / 2;          // after 1 comes 0 alone
  const double expected = -(std::log(first) + std::log(second) + std::log(third)) / 3;
  EXPECT_NEAR(bigram_nll(train, held_out, {{0, 3}}, 4), expected, 1e-12);
  EXPECT_NEAR(bigram_nll(train, held_out, {{1, 2}}, 4), -std::log(second), 1e-12);
  // A token that was never counted, and one after it.
  EXPECT_TRUE(std::isfinite(bigram_nll(train, std::vector<int32_t>{3, 3}, {{0, 2}}, 4)));
}

TEST(Bigram, FindsTheEntropyOfAChainOfPairs) {
  // After token t comes t + 1 with probability 3/4 and t + 2 with 1/4, modulo 16.
  std::vector<int32_t> chain = {0};
  const core::Random random(5);
  for (uint64_t i = 0; i < 60'000; ++i)
    chain.push_back(static_cast<int32_t>((chain.back() + (random.below(i, 4) == 0 ? 2 : 1)) % 16));
  const std::span<const int32_t> all = chain;
  const double entropy = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
  EXPECT_NEAR(bigram_nll(all.first(50'000), all.subspan(50'000), {{0, 10'000}}, 16), entropy, 0.01);
}

}  // namespace
}  // namespace alibi::comparison
