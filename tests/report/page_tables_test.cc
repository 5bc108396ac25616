// The tables of the report page, cell by cell: every number has a value of its own, so that a column that shows
// another's is seen.
#include <gtest/gtest.h>

#include <cmath>

#include "report/markup_check.h"
#include "report/page_sections.h"

namespace alibi::report {
namespace {

using Rows = std::vector<std::vector<std::string>>;

EvaluationPoint point(int64_t length, double perplexity) {
  EvaluationPoint result;
  result.length = length;
  result.stride = length / 2;
  result.tokens = 1000 + length;
  result.nll = perplexity / 8;
  result.perplexity = perplexity;
  result.bits_per_byte = perplexity / 16;
  result.tokens_per_second = static_cast<double>(100 * length);
  return result;
}

/// Two methods, two lengths; the second method could not be tested at the longer one.
CompareResults results() {
  CompareResults all;
  all.train_length = 16;
  all.tokenizer = "byte";
  MethodResults first;
  first.name = first.method = "alibi";
  first.train_length = 16;
  first.train_tokens_per_second = 1234;
  first.train_seconds = 61;
  first.train_peak_bytes = int64_t{11} << 20;
  first.eval_peak_bytes = int64_t{22} << 20;
  first.evaluations = {point(16, 8), point(32, 4)};
  first.per_position_nll = {4, 3, 2, 1};
  MethodResults second;
  second.name = second.method = "learned";
  second.train_length = 16;
  second.train_tokens_per_second = 2345;
  second.train_seconds = 62;
  second.train_peak_bytes = int64_t{33} << 20;
  second.eval_peak_bytes = int64_t{44} << 20;
  second.evaluations = {point(16, 6), EvaluationPoint{.length = 32, .gap = "its table ends"}};
  second.per_position_nll = {5, 3.5, 2.5};
  all.methods = {first, second};
  return all;
}

/// Heading and rows of a table, as texts; `gap` cells have their reason behind them.
Rows rows_of(const std::string& html) {
  Rows rows(1);
  for (const testing::Element& element : testing::read_markup(html, true)) {
    if (element.name == "tr") rows.emplace_back();
    if (element.name != "th" && element.name != "td") continue;
    std::string text = element.text;
    while (!text.empty() && text.back() == ' ') text.pop_back();
    const auto title = element.attributes.find("title");
    rows.back().push_back(title == element.attributes.end() ? text : text + " " + title->second);
  }
  rows.pop_back();
  return rows;
}

TEST(PageTables, Perplexities) {
  EXPECT_EQ(rows_of(perplexity_table(results())), (Rows{{"Length", "alibi", "learned"},
                                                        {"16 1×", "8.000", "6.000"},
                                                        {"32 2×", "4.000 ×0.50", "– its table ends"}}));
}

TEST(PageTables, Bits) {
  EXPECT_EQ(
      rows_of(bits_table(results())),
      (Rows{{"Length", "alibi", "learned"}, {"16 1×", "0.5000", "0.3750"}, {"32 2×", "0.2500", "– its table ends"}}));
}

TEST(PageTables, Details) {
  EXPECT_EQ(rows_of(details_table(results())),
            (Rows{{"Method", "Length", "Stride", "Tokens", "Loss, nats", "Perplexity", "Bits per byte", "Tokens/s"},
                  {"alibi", "16", "8", "1,016", "1.0000", "8.000", "0.5000", "1.60k"},
                  {"alibi", "32", "16", "1,032", "0.5000", "4.000", "0.2500", "3.20k"},
                  {"learned", "16", "8", "1,016", "0.7500", "6.000", "0.3750", "1.60k"},
                  {"learned", "32", "its table ends"}}));
}

TEST(PageTables, Cost) {
  EXPECT_EQ(rows_of(cost_table(results())),
            (Rows{{"Method", "Train tokens/s", "Eval tokens/s at 16", "Eval tokens/s at 32"},
                  {"alibi", "1.23k", "1.60k", "3.20k"},
                  {"learned", "2.35k", "1.60k", "–"},
                  {"Method", "Training took", "FLOPs", "Train memory", "Eval memory"},
                  {"alibi", "1m 01s", "–", "11.0 MiB", "22.0 MiB"},
                  {"learned", "1m 02s", "–", "33.0 MiB", "44.0 MiB"}}));
}

TEST(PageTables, CostInTurns) {
  CompareResults timed = results();
  timed.speed = {{"alibi", false, {{"train", 16, 1234, 1620.4, 1.05}, {"eval", 32, 3200, 600, 1.1}}},
                 {"alibi", true, {{"train", 16, 1200, 1700, 1.0}, {"eval", 32, 1600, 1200, 1.0}}},
                 {"learned", false, {{"train", 16, 2350, 800, 1.0}, {"eval", 32, NAN, NAN, NAN}}}};
  const Rows expected = {
      {"Method", "Training at 16, tokens/s", "CPU s per million", "Evaluation at 32, tokens/s", "CPU s per million"},
      {"alibi", "1.23k", "1,620", "3.20k", "600"},
      {"alibi, all keys", "1.20k", "1,700", "1.60k", "1,200"},
      {"learned", "2.35k", "800", "–", "–"}};
  Rows found = rows_of(cost_table(timed));
  found.resize(expected.size());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(cost_table(timed).find("disturbed"), std::string::npos);
  timed.speed[1].points[0].spread = 1.4;
  EXPECT_NE(cost_table(timed).find("1.40 times as long"), std::string::npos);
}

TEST(PageTables, LossByPosition) {
  EXPECT_EQ(
      rows_of(position_table(results())),
      (Rows{
          {"Positions", "alibi", "learned"}, {"1", "4.000", "5.000"}, {"2", "3.000", "3.500"}, {"3–4", "1.500", "–"}}));
}

}  // namespace
}  // namespace alibi::report
