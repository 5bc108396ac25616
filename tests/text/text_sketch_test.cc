// How much of one text is in another.
#include "text/text_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "alibi/runtime.h"
#include "core/random.h"

namespace alibi::text {
namespace {

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count) {
  const core::Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(random.below(i, 50));
  return tokens;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(TextSketch, TellsThePartThatIsInTheOther) {
  const std::vector<int32_t> seen = random_tokens(1, 1'000'000), other = random_tokens(2, 1'000'000);
  const TextSketch sketch = sketch_of(seen);
  EXPECT_NEAR(static_cast<double>(sketch.hashes.size()), 1 << 14, 1000);
  EXPECT_EQ(part_in(sketch, seen), 1);
  EXPECT_EQ(part_in(sketch, other), 0);
  // Anywhere, at any place of the other.
  const std::vector<int32_t> part(seen.begin() + 123'457, seen.begin() + 323'457);
  EXPECT_EQ(part_in(sketch, part), 1);
  const std::vector<int32_t> unknown(other.begin(), other.begin() + 200'001);
  const std::optional<double> half = part_in(sketch, joined(unknown, part));
  ASSERT_TRUE(half.has_value());
  EXPECT_NEAR(*half, 0.5, 0.05);
}

TEST(TextSketch, AllPassagesOfAShortTextAreKnown) {
  const std::vector<int32_t> seen = random_tokens(1, 2000);
  const TextSketch sketch = sketch_of(seen);
  EXPECT_EQ(sketch.hashes.size(), 2000u - kPassage + 1);
  const std::vector<int32_t> passages(seen.begin() + 700, seen.begin() + 700 + kPassage + 7);
  EXPECT_EQ(part_in(sketch, passages), 1);
  std::vector<int32_t> changed = passages;
  changed[3] += 1;  // in four of the eight
  EXPECT_EQ(part_in(sketch, changed), 0.5);
}

TEST(TextSketch, ShortTextsAreNotJudged) {
  const std::vector<int32_t> seen = random_tokens(1, 1000);
  for (const int64_t count : {int64_t{0}, int64_t{1}, kPassage - 1, kPassage + 6}) {
    EXPECT_FALSE(part_in(sketch_of(seen), std::span(seen).first(static_cast<size_t>(count))).has_value()) << count;
    EXPECT_FALSE(part_in(sketch_of(std::span(seen).first(static_cast<size_t>(count))), {}).has_value());
  }
  EXPECT_FALSE(part_in(sketch_of(random_tokens(2, 3'000'000)), std::span(seen).first(500)).has_value());
}

TEST(TextSketch, TellsHowMuchOfItIsFound) {
  const std::vector<int32_t> seen = random_tokens(1, 1'000'000), other = random_tokens(2, 300'000);
  const TextSketch sketch = sketch_of(std::span(seen).subspan(500'000, 200'000));
  EXPECT_EQ(part_found(sketch, seen), 1);
  EXPECT_EQ(part_found(sketch, other), 0);
  EXPECT_EQ(part_found(sketch, {}), 0);
  const std::vector<int32_t> half(seen.begin() + 600'000, seen.end());
  EXPECT_NEAR(part_found(sketch, joined(other, half)).value(), 0.5, 0.05);
  // What a text repeats counts once.
  const std::vector<int32_t> once(seen.begin(), seen.begin() + 1000);
  const TextSketch repeated = sketch_of(joined(joined(once, once), joined(once, random_tokens(3, 1000))));
  EXPECT_NEAR(part_found(repeated, once).value(), 1000.0 / 2500, 0.08);
  EXPECT_FALSE(part_found(sketch_of(std::span(seen).first(kPassage + 6)), seen).has_value());
}

TEST(TextSketch, IsTheSameAtAnyNumberOfThreads) {
  const std::vector<int32_t> seen = random_tokens(3, 700'000);
  const int before = threads();
  set_threads(1);
  const TextSketch one = sketch_of(seen);
  set_threads(3);
  const TextSketch three = sketch_of(seen);
  set_threads(before);
  EXPECT_EQ(one.hashes, three.hashes);
  EXPECT_EQ(one.most, three.most);
}

}  // namespace
}  // namespace alibi::text
