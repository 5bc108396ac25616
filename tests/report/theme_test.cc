#include "report/theme.h"

#include <gtest/gtest.h>

#include "positions.h"

namespace alibi::report {
namespace {

TEST(Theme, EachPositionMethodHasItsOwnColour) {
  for (const Position& position : test::position_cases()) {
    const std::string name = name_of(position);
    const MethodStyle style = style_of(name);
    EXPECT_EQ(style.name.find("other"), std::string::npos) << name << " has no style in src/model/positions";
    for (const Position& other_position : test::position_cases()) {
      if (position == other_position) continue;
      const MethodStyle other = style_of(name_of(other_position));
      EXPECT_NE(style.line, other.line) << name << " and " << name_of(other_position);
      EXPECT_NE(style.dark_line, other.dark_line) << name << " and " << name_of(other_position);
    }
  }
}

TEST(Theme, AWindowAtTestTimeLooksUnlikeItsMethod) {
  const MethodStyle plain = style_of("rotary@128"), windowed = style_of("rotary@128, window 128");
  EXPECT_NE(windowed.line, plain.line);
  EXPECT_NE(windowed.name, plain.name);
  EXPECT_EQ(windowed.marker, Marker::ring);
  EXPECT_EQ(style_of("rotary, all keys").line, plain.line);
}

}  // namespace
}  // namespace alibi::report
