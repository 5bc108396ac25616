// Reports of numbers that no experiment should give: all are drawn, or left out with a note, in bounded size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/format.h"
#include "report/attention_chart.h"
#include "report/axis.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/markup_check.h"
#include "report/sample_results.h"
#include "report/summarize.h"
#include "report/tables.h"

namespace alibi::report {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const std::vector<double> kExtremes = {1e300,  1e308,  1.7976931348623157e308,
                                       1e-320, 5e-324, 1e-300,
                                       1e30,   1e31,   1e-30,
                                       1e-31,  kInf,   -kInf,
                                       NAN,    0,      -0.0,
                                       -1,     -1e300, -1e-320,
                                       1,      5.5,    700,
                                       710};

void expect_good(const Axis& axis, size_t max_ticks) {
  EXPECT_TRUE(std::isfinite(axis.low) && std::isfinite(axis.high) && axis.low < axis.high)
      << axis.low << " " << axis.high;
  if (axis.logarithmic) {
    EXPECT_GT(axis.low, 0);
  }
  EXPECT_LE(axis.ticks.size(), max_ticks);
  for (const Tick& tick : axis.ticks) {
    EXPECT_GE(tick.value, axis.low);
    EXPECT_LE(tick.value, axis.high);
    EXPECT_LE(tick.label.size(), 26u) << tick.label;
    EXPECT_EQ(tick.label.find("nan"), std::string::npos);
  }
}

TEST(ExtremeValues, EveryAxisIsBounded) {
  std::mt19937_64 random(26);
  std::vector<double> values = kExtremes;
  for (int i = 0; i < 40; ++i) values.push_back(std::bit_cast<double>(random()));
  for (const double low : values) {
    for (const double high : values) {
      SCOPED_TRACE(fmt::format("{} to {}", low, high));
      expect_good(linear_axis(low, high), 40);
      expect_good(logarithmic_axis(low, high), 70);
      expect_good(value_axis(low, high), 70);
    }
  }
  for (const int64_t last : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, INT64_MAX}) {
    expect_good(position_axis(last), 64);
    expect_good(length_axis({std::min<int64_t>(last, 7), std::max<int64_t>(last, 7)}, last, 500), 2);
  }
}

/// The surroundings of the first "nan" or "inf" that is a word, or of the first 25 digits in a row; empty if none are.
std::string bad_number(const std::string& text) {
  size_t digits = 0, letters = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const auto c = static_cast<unsigned char>(i < text.size() ? text[i] : ' ');
    const std::string word = letters == 3 && !std::isalpha(c) ? text.substr(i - 3, 3) : "";
    digits = std::isdigit(c) ? digits + 1 : 0;
    letters = std::isalpha(c) ? letters + 1 : 0;
    if (digits == 25 || word == "nan" || word == "inf") return text.substr(i < 80 ? 0 : i - 80, 120);
  }
  return "";
}

/// All drawings and texts, each checked.
void expect_bounded(const CompareResults& results) {
  const std::string page = report_html(results);
  std::vector<std::string> drawings = {figure_svg(results),
                                       draw_attention(results.methods[0].attention, "alibi", print_theme(), true)};
  for (const std::string& svg : drawings) {
    EXPECT_LT(svg.size(), 60'000u);
    EXPECT_NO_THROW(testing::read_markup(svg)) << svg;
  }
  EXPECT_LT(page.size(), 300'000u);
  EXPECT_NO_THROW(testing::read_markup(page, true));
  const std::string text = comparison_text(results);
  EXPECT_LT(text.size(), 20'000u);
  for (const std::string* all : {&page, &text}) EXPECT_EQ(bad_number(*all), "");
}

std::vector<RunResults> small_runs() {
  std::vector<RunResults> runs;
  for (const MethodResults& method : testing::sample_results({{"alibi", 5.7, 0.002}, {"none", 6.1, 0.06}}).methods) {
    for (const uint64_t seed : {1, 2}) {
      RunResults run = method.runs[0];
      run.seed = seed;
      run.loss.resize(6);
      run.per_position_nll.resize(9);
      run.attention = {512, {0, 1, 2, 4}, {{0, 0, 0.5, {0.25, 0.125, 0.1}, {0.5, 0.25, 0}}}};
      runs.push_back(run);
    }
  }
  return runs;
}

/// Every number of a double that a chart shows, in a fixed order.
std::vector<double*> numbers(RunResults& run) {
  std::vector<double*> all = {&run.train_seconds, &run.train_tokens_per_second, &run.train_flops_per_token,
                              &run.learning_rate};
  for (LossPoint& point : run.loss) all.push_back(&point.loss);
  for (EvaluationPoint& point : run.evaluations) {
    all.insert(all.end(), {&point.nll, &point.perplexity, &point.bits_per_byte, &point.tokens_per_second});
  }
  for (ContextPoint& point : run.context) all.push_back(&point.nll);
  for (double& nll : run.per_position_nll) all.push_back(&nll);
  for (HeadAttention& head : run.attention.heads) {
    all.push_back(&head.slope);
    for (double& weight : head.weight) all.push_back(&weight);
    for (double& weight : head.bias) all.push_back(&weight);
  }
  return all;
}

CompareResults with_runs(const std::vector<RunResults>& runs) {
  CompareResults results = testing::sample_results({{"alibi", 5.7, 0.002}});
  results.methods = methods_of(runs, results.held_out);
  return results;
}

TEST(ExtremeValues, OneInEveryPlace) {
  const std::vector<RunResults> good = small_runs();
  const size_t places = numbers(std::vector<RunResults>(good)[0]).size();
  for (size_t place = 0; place < places; place += 5) {
    for (const double value : kExtremes) {
      std::vector<RunResults> runs = good;
      runs.erase(runs.begin() + 1);  // one seed of alibi, two of none
      *numbers(runs[0])[place] = value;
      SCOPED_TRACE(fmt::format("number {} is {}", place, value));
      ASSERT_NO_THROW(expect_bounded(with_runs(runs)));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(ExtremeValues, OneInAllPlaces) {
  for (const double value : kExtremes) {
    std::vector<RunResults> runs = small_runs();
    for (double* number : numbers(runs[0])) *number = value;
    CompareResults results = with_runs(runs);
    results.speed = {{"alibi", false, {{"train", 128, value, value, value}}},
                     {"none", false, {{"eval", 128, 1, 2, 1}}}};
    SCOPED_TRACE(value);
    ASSERT_NO_THROW(expect_bounded(results));
  }
}

TEST(ExtremeValues, RandomOnesEverywhere) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 60; ++i) {
    std::vector<RunResults> runs = small_runs();
    for (RunResults& run : runs) {
      for (double* number : numbers(run)) {
        if (random() % 4 == 0) *number = kExtremes[random() % kExtremes.size()];
        if (random() % 8 == 0) *number = std::bit_cast<double>(random());
      }
      if (random() % 4 == 0) run.train_peak_bytes = INT64_MAX;
      if (random() % 4 == 0) run.loss[0].tokens = 0;
      if (random() % 4 == 0) run.loss[5].tokens = INT64_MAX;
    }
    CompareResults results = with_runs(runs);
    results.seconds = kExtremes[random() % kExtremes.size()];
    SCOPED_TRACE(i);
    ASSERT_NO_THROW(expect_bounded(results));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ExtremeValues, AGapHasANote) {
  std::vector<RunResults> runs = {small_runs()[0], small_runs()[2]};
  runs[0].evaluations[1].perplexity = 1e300;  // in the middle
  runs[1].evaluations[8].perplexity = 1e300;  // at the end
  runs[0].loss[2].loss = NAN;
  runs[0].context[0].nll = -1e300;
  runs[0].per_position_nll[0] = kInf;
  runs[0].attention.heads[0].weight[1] = 1e300;
  const CompareResults results = with_runs(runs);
  const LineChart chart = perplexity_chart(results);
  EXPECT_NE(chart.gaps.find("alibi at 160 (1.00e+300)"), std::string::npos) << chart.gaps;
  EXPECT_NE(chart.gaps.find("none at 2,048 (1.00e+300)"), std::string::npos) << chart.gaps;
  EXPECT_EQ(chart.series[0].end_note, "is off the scale past 1,024");
  EXPECT_LT(chart.y.high, 20);
  EXPECT_NE(report_html(results).find("Not drawn: none at 2,048 (1.00e+300); alibi at 160 (1.00e+300)."),
            std::string::npos);
  EXPECT_NE(figure_svg(results).find("Some values are not drawn; figure.csv contains them"), std::string::npos);
  EXPECT_NE(draw_attention(results.methods[0].attention, "alibi", print_theme(), true)
                .find("some values are not attention weights"),
            std::string::npos);
  EXPECT_EQ(perplexity_chart(testing::sample_results()).gaps, "");
}

TEST(ExtremeValues, AreShortAsText) {
  for (const double value : kExtremes) {
    for (const std::string& text :
         {core::format_count(value), core::format_bits(value), core::format_decimal(value, 3),
          core::format_percent(value), core::format_percent(value, true), core::format_ratio(value),
          core::format_perplexity(std::abs(value)), core::format_duration(value)}) {
      EXPECT_LE(text.size(), 14u) << text;
    }
  }
  EXPECT_EQ(core::format_count(1e300), "1.00e+300");
  EXPECT_EQ(core::format_percent(0.0444), "4.4");
  EXPECT_EQ(core::format_percent(0.44), "44");
  EXPECT_EQ(core::format_percent(-0.44, true), "-44.0");
}

}  // namespace
}  // namespace alibi::report
