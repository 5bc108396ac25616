#include "text/lines.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace alibi::text {
namespace {

using Lines = std::vector<std::pair<std::string, int64_t>>;

Lines lines_of(const std::string& text) {
  Lines lines;
  each_line(text, [&](std::string_view line, int64_t number) { lines.emplace_back(line, number); });
  return lines;
}

TEST(Lines, EverySystemsLinesAreTheSame) {
  const std::string expected = "a\n\nb c\nd";
  EXPECT_EQ(with_line_feeds(expected), expected);
  EXPECT_EQ(with_line_feeds("a\r\n\r\nb c\r\nd"), expected);
  EXPECT_EQ(with_line_feeds("\xef\xbb\xbf"
                            "a\r\n\nb c\r\nd\r"),
            expected);
  EXPECT_EQ(with_line_feeds(""), "");
  EXPECT_EQ(with_line_feeds("\xef\xbb\xbf"), "");
  EXPECT_EQ(with_line_feeds("\r"), "");
}

TEST(Lines, OnlyLineEndsAndTheFirstMarkAreRemoved) {
  EXPECT_EQ(with_line_feeds("a\rb\r\r\n"), "a\rb\r\n");
  EXPECT_EQ(with_line_feeds("a\xef\xbb\xbf\n\xef\xbb\xbf"), "a\xef\xbb\xbf\n\xef\xbb\xbf");
  EXPECT_EQ(with_line_feeds("\xef\xbb\xbf\xef\xbb\xbf"
                            "a"),
            "\xef\xbb\xbf"
            "a");
  EXPECT_EQ(with_line_feeds("\xef\xbb\xbf"
                            "a\r\n",
                            /*is_beginning=*/false),
            "\xef\xbb\xbf"
            "a\n");
}

TEST(Lines, AreNumbered) {
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("a\n\nb"), (Lines{{"a", 1}, {"", 2}, {"b", 3}}));
  EXPECT_EQ(lines_of("\na\n"), (Lines{{"", 1}, {"a", 2}}));
}

}  // namespace
}  // namespace alibi::text
