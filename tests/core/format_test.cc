#include "core/format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/markup.h"

namespace alibi::core {
namespace {

TEST(Format, Duration) {
  EXPECT_EQ(format_duration(0.84), "0.8 s");
  EXPECT_EQ(format_duration(9.96), "10 s");
  EXPECT_EQ(format_duration(59.6), "1m 00s");
  EXPECT_EQ(format_duration(291), "4m 51s");
  EXPECT_EQ(format_duration(7500), "2h 05m");
  EXPECT_EQ(format_duration(86400 * 3 + 3600 * 4), "3d 04h");
  EXPECT_EQ(format_duration(NAN), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1023 * 1024), "1.00 MiB");
  EXPECT_EQ(format_bytes(int64_t{212} << 20), "212 MiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 30), "5.00 GiB");
}

TEST(Format, Count) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(3.5), "3.5");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.7), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(99960), "100k");
  EXPECT_EQ(format_count(1234567), "1.23M");
  EXPECT_EQ(format_count(246933504), "247M");
  EXPECT_EQ(format_count(NAN), "?");
}

TEST(Format, Integer) {
  EXPECT_EQ(format_integer(0), "0");
  EXPECT_EQ(format_integer(999), "999");
  EXPECT_EQ(format_integer(65536), "65,536");
  EXPECT_EQ(format_integer(-1000), "-1,000");
  EXPECT_EQ(format_integer(-100), "-100");
  EXPECT_EQ(format_integer(246933504), "246,933,504");
}

TEST(Format, PerplexityAndRatio) {
  EXPECT_EQ(format_perplexity(5.7516), "5.752");
  EXPECT_EQ(format_perplexity(9.9999), "10.00");
  EXPECT_EQ(format_perplexity(12.714), "12.71");
  EXPECT_EQ(format_perplexity(123.44), "123.4");
  EXPECT_EQ(format_perplexity(9.9994), "9.999");
  EXPECT_EQ(format_perplexity(9.9996), "10.00");
  EXPECT_EQ(format_perplexity(99.994), "99.99");
  EXPECT_EQ(format_perplexity(99.997), "100.0");
  EXPECT_EQ(format_perplexity(999.94), "999.9");
  EXPECT_EQ(format_perplexity(999.97), "1,000");
  EXPECT_EQ(format_perplexity(999999.4), "999,999");
  EXPECT_EQ(format_perplexity(999999.6), "1.00e+06");
  EXPECT_EQ(format_perplexity(92355.4), "92,355");
  EXPECT_EQ(format_perplexity(12345678), "1.23e+07");
  EXPECT_EQ(format_perplexity(NAN), "-");
  EXPECT_EQ(format_ratio(0.978), "0.98");
  EXPECT_EQ(format_ratio(12.34), "12.3");
  EXPECT_EQ(format_ratio(1234), "1,234");
  EXPECT_EQ(format_multiple(160, 128), "1.25");
  EXPECT_EQ(format_multiple(1024, 128), "8");
}

TEST(Markup, Escapes) {
  EXPECT_EQ(report::escape_markup("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  EXPECT_EQ(report::escape_markup("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(report::escape_markup("\xFF"), "\xEF\xBF\xBD");
}

TEST(Markup, StrangeBytesAreShown) {
  EXPECT_EQ(report::visible_text("a\nb\t<\x1b\xFF\xC2\x9B\u202Ecaf\xC3\xA9"),
            "a\\nb\\t<\\x1b\\xff\\x9b\\u202ecaf\xC3\xA9");
  EXPECT_EQ(report::visible_text("\x1b"), "\\x1b");
  EXPECT_EQ(report::visible_text(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(report::visible_text("\xFF"), "\\xff");
  EXPECT_EQ(report::visible_text("\xC3"), "\\xc3") << "cut off";
  EXPECT_EQ(report::visible_text("\xC3x"), "\\xc3x");
  EXPECT_EQ(report::visible_text("\xC0\xAF"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(report::visible_text("\xE0\x80\x80").find("\\xe0"), 0u) << "overlong";
  EXPECT_EQ(report::visible_text("\xED\xA0\x80").find("\\xed"), 0u) << "surrogate";
  EXPECT_EQ(report::visible_text("\xF4\x90\x80\x80").find("\\xf4"), 0u) << "past U+10FFFF";
  EXPECT_EQ(report::visible_text("\xE2\x80\xAE"), "\\u202e") << "turns the line around";
  EXPECT_EQ(report::visible_text("\xC2\x85"), "\\x85") << "C1 control";
}

TEST(Markup, CharactersAreNotCut) {
  const std::string_view text =
      "a\xE2\x82\xAC"
      "b";
  EXPECT_EQ(report::character_start(text, 1), 1u);
  EXPECT_EQ(report::character_start(text, 2), 4u);
  EXPECT_EQ(report::character_start(text, 3), 4u);
  EXPECT_EQ(report::character_start(text, 99), 5u);
}

}  // namespace
}  // namespace alibi::core
