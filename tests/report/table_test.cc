#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "report/sample_results.h"
#include "report/tables.h"

namespace alibi::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The line that begins with this, or "".
std::string line_with(const std::string& text, const std::string& begin) {
  for (const std::string& line : lines_of(text)) {
    if (line.rfind(begin, 0) == 0) return line;
  }
  return "";
}

TEST(ComparisonText, ColumnsStandUnderEachOther) {
  const std::string table = comparison_text(testing::sample_results());
  const std::string header = line_with(table, "Length ");
  ASSERT_FALSE(header.empty());
  // The digits of a cell end where the name of the method ends.
  for (const char* begin : {"128 ", "160 (1.25x)", "1,024 (8x)", "2,048 (16x)"}) {
    const std::string line = line_with(table, begin);
    ASSERT_FALSE(line.empty()) << begin;
    for (const char* name : {"alibi", "sinusoidal", "rotary", "t5", "learned", "none"}) {
      const size_t end = header.find(name) + std::string(name).size() - 1;
      ASSERT_LT(end, line.size());
      EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(line[end])) || line[end] == '-') << name << "\n" << line;
      EXPECT_TRUE(end + 1 >= line.size() || line[end + 1] == ' ' || line[end + 1] == '*') << name << "\n" << line;
    }
  }
  for (const std::string& line : lines_of(table)) {
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
}

TEST(ComparisonText, MarksTheBestAndGaps) {
  const std::string table = comparison_text(testing::sample_results());
  const std::string longest = line_with(table, "2,048 (16x)");
  EXPECT_NE(longest.find("5.620*"), std::string::npos) << longest;
  EXPECT_EQ(std::count(longest.begin(), longest.end(), '*'), 1);
  EXPECT_NE(longest.find(" - "), std::string::npos) << longest;
  EXPECT_NE(table.find("- learned at 160: [model]"), std::string::npos);
}

TEST(ComparisonText, BitsPerByteFollowThePerplexities) {
  const std::string table = comparison_text(testing::sample_results());
  EXPECT_NE(table.find("Perplexity of bpe tokens of held-out text by evaluation length. The second number is the "
                       "change relative to the "
                       "training length, 128."),
            std::string::npos)
      << table;
  const size_t bits = table.find("Bits per byte");
  ASSERT_NE(bits, std::string::npos);
  // The base-2 logarithms of the perplexities, for the sample takes tokens for bytes: of 5.751 * 16^0.002 * 0.971875.
  const std::string longest = line_with(table.substr(bits), "2,048 (16x)");
  EXPECT_NE(longest.find(" 2.4907*"), std::string::npos) << longest;
}

TEST(ComparisonText, AMethodThatHasNotLearnedIsNotTheBest) {
  CompareResults results = testing::sample_results({{"alibi", 5.75, 0.3}, {"sinusoidal", 11, 0}});
  EXPECT_NE(line_with(comparison_text(results), "2,048 (16x)").find("10.69*"), std::string::npos);
  results.held_out.bigram_nll = std::log(11.2);
  const std::string text = comparison_text(results);
  const std::string longest = line_with(text, "2,048 (16x)");  // alibi has 12.84 there
  EXPECT_NE(longest.find("12.84*"), std::string::npos) << longest;
  EXPECT_NE(longest.find("10.69 "), std::string::npos) << longest;
  EXPECT_NE(text.find("sinusoidal (11.00) has not learned yet"), std::string::npos) << text;
  EXPECT_NE(text.find("among the methods that have learned"), std::string::npos) << text;
}

TEST(ComparisonText, OneMethodHasNoBest) {
  const std::string table = comparison_text(testing::sample_results({{"alibi", 5.75, 0}}));
  EXPECT_EQ(table.find('*'), std::string::npos);
  EXPECT_EQ(table.find("marked"), std::string::npos);
}

TEST(ComparisonText, NumbersThatAreMissing) {
  CompareResults results = testing::sample_results({{"alibi", 5.75, 0}, {"rotary", 5.8, .2}});
  for (EvaluationPoint& point : results.methods[0].evaluations) point.perplexity = NAN;
  const std::string table = comparison_text(results);
  EXPECT_EQ(table.find("nan"), std::string::npos);
  EXPECT_NE(table.find("- alibi at 128: the result is not a finite number"), std::string::npos);
  EXPECT_NE(line_with(table, "128 (1x)").find("5.800*"), std::string::npos);
  EXPECT_EQ(comparison_text(CompareResults{}), "No method was compared.\n");
}

}  // namespace
}  // namespace alibi::report
