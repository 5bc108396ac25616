#include "text/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"

namespace alibi::text {
namespace {

std::vector<std::string> units_of(std::string_view text) {
  std::vector<std::string> units;
  while (!text.empty()) {
    const size_t length = unit_length(text);
    EXPECT_TRUE(length > 0 && length <= kMaxUnit && length <= text.size()) << length;
    if (length == 0) break;
    units.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return units;
}

/// Lines of all lengths, words, runs of spaces, characters of two to four bytes and stray bytes.
std::string random_text(uint64_t seed, size_t size) {
  const std::vector<std::string> parts = {"a",
                                          "word",
                                          " ",
                                          "   ",
                                          "\n",
                                          "\n\n",
                                          "\u00e9",
                                          "\u20ac",
                                          "\U0001f600",
                                          "\xff",
                                          std::string(3000, 'x'),
                                          std::string(5000, 'y'),
                                          std::string(4095, 'z')};
  const core::Random random(seed);
  std::string text;
  for (uint64_t i = 0; text.size() < size; ++i) {
    // Long parts are rare.
    const uint64_t kinds = random.below(2 * i, 20) == 0 ? parts.size() : 10;
    text += parts[random.below(2 * i + 1, kinds)];
  }
  return text;
}

TEST(Units, AreLines) {
  EXPECT_EQ(units_of("a b\n\n  c\nd"), (std::vector<std::string>{"a b\n", "\n", "  c\n", "d"}));
  EXPECT_EQ(unit_length(""), 0u);
}

TEST(Units, LongLinesAreCutBeforeTheFirstOfSomeSpacesOrBetweenCharacters) {
  const std::string spaced = std::string(4000, 'x') + "   " + std::string(4000, 'y');
  EXPECT_EQ(unit_length(spaced), 4000u);
  EXPECT_EQ(unit_length(std::string(5000, 'x')), kMaxUnit);
  EXPECT_EQ(unit_length(std::string(kMaxUnit, 'x')), kMaxUnit);
  EXPECT_EQ(unit_length(std::string(kMaxUnit - 1, 'x') + "\nx"), kMaxUnit);
  for (size_t before = kMaxUnit - 5; before <= kMaxUnit; ++before) {
    const size_t cut = unit_length(std::string(before, 'x') + "\U0001f600" + std::string(100, 'x'));
    EXPECT_TRUE(cut <= before || cut >= before + 4) << before << " " << cut;
    EXPECT_GE(cut, kMaxUnit - 3);
  }
  EXPECT_EQ(unit_length(std::string(5000, '\x80')), kMaxUnit);  // no characters
}

TEST(Units, TextCutBetweenUnitsHasTheSameUnits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = random_text(seed, 60000);
    const std::vector<std::string> expected = units_of(text);
    for (const size_t least : {size_t{1}, size_t{1000}, size_t{4096}, size_t{9000}, size_t{1} << 20}) {
      std::vector<std::string> found;
      for (std::string_view rest = text; !rest.empty();) {
        const size_t length = units_length(rest, least);
        ASSERT_GE(length, std::min(least, rest.size()));
        ASSERT_LE(length, std::min(least + kMaxUnit, rest.size()));
        for (std::string& unit : units_of(rest.substr(0, length))) found.push_back(std::move(unit));
        rest.remove_prefix(length);
      }
      EXPECT_EQ(found, expected) << "seed " << seed << ", pieces of " << least;
    }
  }
}

}  // namespace
}  // namespace alibi::text
