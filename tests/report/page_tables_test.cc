// The tables of the report, cell by cell: every number has a value of its own, so that a column that shows
// another's is seen.
#include <gtest/gtest.h>

#include <cmath>

#include "report/tables.h"
#include "report/verdict.h"

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
Rows rows_of(const Table& table) {
  const auto joined = [](const std::string& text, const std::string& more) {
    return text + (more.empty() ? "" : " ") + more;
  };
  Rows rows(1);
  for (const Heading& column : table.columns) rows[0].push_back(joined(column.text, column.more));
  for (const TableRow& row : table.rows) {
    std::vector<std::string>& texts = rows.emplace_back();
    texts.push_back(joined(row.head.text, row.head.more));
    for (const Cell& cell : row.cells) texts.push_back(joined(joined(cell.text, cell.more), cell.gap));
  }
  return rows;
}

TEST(PageTables, Perplexities) {
  EXPECT_EQ(rows_of(perplexity_table(results())), (Rows{{"Length", "alibi", "learned"},
                                                        {"16 1×", "8.000", "6.000"},
                                                        {"32 2×", "4.000 -39.3 %", "– its table ends"}}));
}

TEST(PageTables, Bits) {
  EXPECT_EQ(
      rows_of(bits_table(results())),
      (Rows{{"Length", "alibi", "learned"}, {"16 1×", "0.5000", "0.3750"}, {"32 2×", "0.2500", "– its table ends"}}));
}

TEST(PageTables, Cost) {
  EXPECT_TRUE(speed_table(results()).rows.empty()) << "speeds of runs that followed one another are not compared";
  EXPECT_EQ(comparison_text(results()).find("Tokens per second"), std::string::npos);
  EXPECT_EQ(rows_of(cost_table(results())),
            (Rows{{"Method", "Training time", "FLOPs", "Training memory", "Evaluation memory"},
                  {"alibi", "1m 01s", "– not measured", "11.0 MiB", "22.0 MiB"},
                  {"learned", "1m 02s", "– not measured", "33.0 MiB", "44.0 MiB"}}));
}

TEST(PageTables, SpeedInRounds) {
  CompareResults timed = results();
  timed.speed = {{"alibi", false, {{"train", 16, 1234, 1620.4, 1.05, 3}, {"eval", 32, 3200, 600, 1.1, 3}}},
                 {"learned", false, {{"train", 16, 2350, 800, 1.0, 3}, {"eval", 32, NAN, NAN, NAN, 0}}}};
  EXPECT_EQ(speed_note(timed), "");
  timed.speed.insert(timed.speed.begin() + 1,
                     {"alibi", true, {{"train", 16, 1200, 1700, 1.0, 3}, {"eval", 32, 1600, 1200, 1.0, 3}}});
  const Rows expected = {{"Method", "Training at 16", "Evaluation at 32"},
                         {"alibi", "1.23k 1,620 s", "3.20k 600 s"},
                         {"alibi, all keys", "1.20k 1,700 s", "1.60k 1,200 s"},
                         {"learned", "2.35k 800 s", "– not measured"}};
  EXPECT_EQ(rows_of(speed_table(timed)), expected);
  EXPECT_NE(speed_note(timed).find("\"All keys\" is the same model without the skip rule"), std::string::npos);
  EXPECT_EQ(speed_note(timed).find("disturbed"), std::string::npos);
  timed.speed[1].points[0].spread = 1.4;
  EXPECT_NE(speed_note(timed).find("1.40 times as long"), std::string::npos);
  timed.speed[1].points[0].rounds = 1;
  EXPECT_NE(speed_note(timed).find("in one round"), std::string::npos);
}

TEST(PageTables, TheMarkIsExplainedOnlyWhereThereIsOne) {
  CompareResults all = results();
  EXPECT_NE(perplexity_table(all).caption.find("The lowest number in each row is marked."), std::string::npos);
  all.held_out.bigram_nll = 0.9;  // alibi has a loss of 1 at its training length, learned 0.75
  EXPECT_NE(bits_table(all).caption.find("among the methods that have learned is marked."), std::string::npos);
  all.held_out.bigram_nll = 0.1;
  for (const Table& table : {perplexity_table(all), bits_table(all)}) {
    EXPECT_EQ(table.caption.find("is marked"), std::string::npos) << table.caption;
  }
}

TEST(PageTables, IntervalsAreAnnouncedOnlyWhereThereAreSome) {
  CompareResults all = results();
  EXPECT_EQ(difference_table(all, {16}).caption.find("intervals"), std::string::npos);
  all.methods[0].evaluations[0].interval = {0.9, 1.1};
  EXPECT_NE(difference_table(all, {16}).caption.find("95 % intervals"), std::string::npos);
}

TEST(PageTables, SentencesSayTheNumbersOfTheTables) {
  CompareResults all = results();
  all.methods[1].evaluations[1] = point(32, 6.5);
  all.methods[1].runs = {all.methods[1]};
  all.methods[0].runs = {all.methods[0]};
  const std::string text = verdict(all);
  const std::string tables = to_text(perplexity_table(all)) + to_text(difference_table(all, {16, 32}));
  // 4 against 6.5 with a loss of an eighth of these: +36.7 %; alibi falls from 8 to 4, -39.3 %.
  for (const char* number : {"+36.7 %", "-39.3 %", "4.000", "6.500"}) {
    EXPECT_NE(text.find(number), std::string::npos) << number << " in " << text;
    EXPECT_NE(tables.find(number), std::string::npos) << number << " in " << tables;
  }
}

}  // namespace
}  // namespace alibi::report
