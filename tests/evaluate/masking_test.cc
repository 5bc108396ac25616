#include "evaluate/masking.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace alibi::evaluation {
namespace {

TEST(Masking, AsksForItsPartAndTreatsItAsBertDoes) {
  constexpr int32_t mask = 50, token = 7;
  constexpr uint64_t places = 200'000;
  const Masking masking(0.15, core::Random(3, 4), mask);
  int64_t asked = 0, masked = 0, other = 0;
  std::vector<int64_t> drawn(mask, 0);
  for (uint64_t place = 0; place < places; ++place) {
    const auto [input, target] = masking(token, place);
    EXPECT_EQ(target >= 0, masking.asks(place));
    if (target < 0) {
      ASSERT_EQ(input, token) << "a token that is not predicted must not change";
      continue;
    }
    ASSERT_EQ(target, token);
    ++asked;
    masked += input == mask ? 1 : 0;
    other += input != mask && input != token ? 1 : 0;
    if (input != mask) ++drawn.at(static_cast<size_t>(input));
  }
  const auto expect_share = [](int64_t found, int64_t of, double share) {  // five standard deviations
    const auto n = static_cast<double>(of);
    EXPECT_NEAR(static_cast<double>(found) / n, share, 5 * std::sqrt(share * (1 - share) / n));
  };
  expect_share(asked, places, 0.15);
  expect_share(masked, asked, 0.8);
  expect_share(other, asked, 0.1 * 49 / 50);  // a fiftieth draws the token itself
  for (int32_t id = 0; id < mask; ++id) {
    if (id != token) expect_share(drawn[static_cast<size_t>(id)], asked, 0.1 / 50);
  }
}

TEST(Masking, IsAFunctionOfTheNumbersGiven) {
  const auto choice = [](uint64_t seed, uint64_t stream) {
    std::vector<bool> asked;
    for (uint64_t place = 0; place < 200; ++place)
      asked.push_back(Masking(0.5, core::Random(seed, stream), 9).asks(place));
    return asked;
  };
  EXPECT_EQ(choice(1, 2), choice(1, 2));
  EXPECT_NE(choice(1, 2), choice(2, 2));
  EXPECT_NE(choice(1, 2), choice(1, 3));
  for (uint64_t place = 0; place < 200; ++place) EXPECT_TRUE(Masking(1, core::Random(1), 9).asks(place));
}

}  // namespace
}  // namespace alibi::evaluation
