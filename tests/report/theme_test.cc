#include "report/theme.h"

#include <gtest/gtest.h>

#include "alibi/transformer.h"

namespace alibi::report {
namespace {

TEST(Theme, EachPositionMethodHasItsOwnColour) {
  for (const auto& [position, name] : enum_names<Position>) {
    const MethodStyle& style = style_of(name);
    EXPECT_EQ(style.name, name) << "kMethodStyles in src/report/theme.h has no entry for it";
    for (const auto& [other_position, other_name] : enum_names<Position>) {
      if (position == other_position) continue;
      const MethodStyle& other = style_of(other_name);
      EXPECT_NE(style.line, other.line) << name << " and " << other_name;
      EXPECT_NE(style.dark_line, other.dark_line) << name << " and " << other_name;
    }
  }
}

}  // namespace
}  // namespace alibi::report
