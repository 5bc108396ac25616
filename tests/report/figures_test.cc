#include "report/figures.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/error.h"
#include "report/labels.h"
#include "report/markup_check.h"
#include "report/sample_results.h"
#include "report/svg.h"

namespace alibi::report {
namespace {

using testing::Element;
using testing::read_markup;

/// Comparisons that have given drawings trouble.
std::vector<CompareResults> difficult_results() {
  std::vector<CompareResults> all;
  all.push_back(testing::sample_results());
  all.push_back(testing::sample_results({{"alibi", 5.75, 0.002}}));
  all.push_back(testing::sample_results({{"alibi", 5.75, 0}, {"sinusoidal", 5.8, 3.5}, {"rotary", 5.7, 1.6}}));
  all.push_back(
      testing::sample_results({{"alibi", 5.75, 0}, {"rotary", 5.7501, 0}, {"t5", 5.7502, 0}, {"none", 5.75, 0}}));
  all.push_back(testing::sample_results({{"learned", 5.75, 0}, {"my method", 6, 0.1}}));
  CompareResults two = testing::sample_results();
  for (MethodResults& method : two.methods) method.evaluations.resize(2);
  all.push_back(two);
  CompareResults one = testing::sample_results();
  for (MethodResults& method : one.methods) method.evaluations.resize(1);
  all.push_back(one);
  CompareResults broken = testing::sample_results();
  broken.methods[1].evaluations[8].perplexity = NAN;
  broken.methods[2].evaluations[4].perplexity = INFINITY;
  for (EvaluationPoint& point : broken.methods[3].evaluations) point.perplexity = NAN;
  all.push_back(broken);
  all.emplace_back();
  return all;
}

std::vector<std::string> drawings(const CompareResults& results) {
  return {figure_svg(results), draw(perplexity_chart(results), page_theme(), false)};
}

double number(const Element& element, const char* key) { return std::stod(element.attributes.at(key)); }

/// Where a text lies, narrower than the estimate that placed it: fonts differ, and only real overlaps count.
Box box_of(const Element& text) {
  const double size = number(text, "font-size"), x = number(text, "x"), y = number(text, "y");
  const double width = 0.9 * text_width(text.text, size);
  const auto anchor = text.attributes.find("text-anchor");
  const double left = anchor == text.attributes.end() ? x : anchor->second == "end" ? x - width : x - width / 2;
  return {left, y - 0.7 * size, left + width, y + 0.1 * size};
}

TEST(Figures, SeveralTrainingLengthsAreNamedAndNoneIsMarked) {
  CompareResults results = testing::sample_results();
  EXPECT_NE(perplexity_chart(results).subtitle.find("Trained on windows of 128 bpe tokens"), std::string::npos);
  EXPECT_EQ(perplexity_chart(results).mark, 128);
  results.methods[1].train_length = 1024;
  const LineChart chart = perplexity_chart(results);
  EXPECT_NE(chart.subtitle.find("Trained on windows of 128 and 1,024 bpe tokens"), std::string::npos) << chart.subtitle;
  EXPECT_FALSE(chart.mark.has_value());
  EXPECT_EQ(chart.x_label, "Evaluation length in tokens (@: trained at)");
}

TEST(Figures, AreWellFormedAndHoldNoBadNumbers) {
  for (const CompareResults& results : difficult_results()) {
    for (const std::string& svg : drawings(results)) {
      std::vector<Element> elements;
      ASSERT_NO_THROW(elements = read_markup(svg)) << svg;
      EXPECT_EQ(elements.back().name, "svg");
      for (const Element& element : elements) {
        for (const auto& [key, value] : element.attributes) {
          EXPECT_EQ(value.find("nan"), std::string::npos) << key << "=" << value;
          EXPECT_EQ(value.find("inf"), std::string::npos) << key << "=" << value;
        }
      }
    }
  }
}

TEST(Figures, AreLabelledForThoseWhoDoNotSeeThem) {
  const CompareResults results = testing::sample_results();
  testing::expect_labelled(figure_svg(results), "perplexity");
  testing::expect_labelled(draw(perplexity_chart(results), page_theme(), false), "perplexity");
}

TEST(Figures, TextsDoNotOverlapAndLieInside) {
  for (const CompareResults& results : difficult_results()) {
    for (const std::string& svg : drawings(results)) {
      const std::vector<Element> elements = read_markup(svg);
      const Box picture{0, 0, number(elements.back(), "width"), number(elements.back(), "height")};
      std::vector<Element> texts;
      for (const Element& element : elements) {
        if (element.name == "text") texts.push_back(element);
      }
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_TRUE(picture.contains(box_of(texts[i]))) << texts[i].text;
        for (size_t j = 0; j < i; ++j) {
          EXPECT_FALSE(box_of(texts[i]).overlaps(box_of(texts[j]))) << texts[i].text << " / " << texts[j].text;
        }
      }
    }
  }
}

TEST(Figures, EveryMethodIsNamedAndEveryNumberHasAMarker) {
  const std::string svg = figure_svg(testing::sample_results());
  size_t tooltips = 0;
  std::string texts;
  for (const Element& element : read_markup(svg)) {
    if (element.name == "title" && element.text.find(" at ") != std::string::npos) ++tooltips;
    if (element.name == "text") texts += element.text + "|";
  }
  EXPECT_EQ(tooltips, 5u * 9 + 1);  // learned has one
  for (const char* text :
       {"alibi5.620", "sinusoidal14.53", "learnedcannot run past 128", "trained at 128", "2,048", "16×"}) {
    EXPECT_NE(texts.find(text), std::string::npos) << text << " in " << texts;
  }
}

TEST(Figures, AMethodThatHasNotLearnedIsDashed) {
  CompareResults results = testing::sample_results({{"alibi", 5.75, 0}, {"sinusoidal", 11, 0}});
  EXPECT_EQ(figure_svg(results).find("Dashed: a method"), std::string::npos);
  results.held_out.bigram_nll = std::log(11.2);
  const std::string svg = draw(perplexity_chart(results), page_theme(), false);
  EXPECT_NE(svg.find("Dashed lines: methods that have not learned yet."), std::string::npos);
  size_t dashed = 0;
  for (const Element& element : read_markup(svg)) {
    const bool is_curve = element.name == "path" && element.attributes.at("stroke") == "var(--sinusoidal)";
    dashed += is_curve && element.attributes.contains("stroke-dasharray");
    EXPECT_FALSE(element.name == "path" && element.attributes.at("stroke") == "var(--alibi)" &&
                 element.attributes.contains("stroke-dasharray"));
  }
  EXPECT_EQ(dashed, 1u);
}

TEST(Figures, WithoutAnyValueTheLabelIsWhole) {
  CompareResults results = testing::sample_results({{"sinusoidal", 5.75, 0}});
  for (EvaluationPoint& point : results.methods[0].evaluations) point.perplexity = NAN;
  bool found = false;
  const std::vector<Element> elements = read_markup(figure_svg(results));
  for (const Element& element : elements) {
    if (element.text.find("no value") == std::string::npos || element.name != "text") continue;
    found = true;
    const double width = text_width(element.text, number(element, "font-size"), true);
    EXPECT_LE(number(element, "x") + width, number(elements.back(), "width"));
  }
  EXPECT_TRUE(found);
}

TEST(Figures, BandsAreThoseOfTheSeeds) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}, {"rotary", 6, 0.1}});
  const auto polygons_without_marker = [&] {
    size_t count = 0;
    for (const Element& element : read_markup(figure_svg(results)))
      count += element.attributes.contains("fill-opacity");
    return count;
  };
  EXPECT_EQ(polygons_without_marker(), 0u);
  std::vector<RunResults> runs;
  for (const MethodResults& method : results.methods) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      runs.push_back(method.runs[0]);
      runs.back().seed = seed;
      for (EvaluationPoint& point : runs.back().evaluations) point.nll += 0.01 * static_cast<double>(seed);
    }
  }
  results.methods = methods_of(runs, {});
  EXPECT_EQ(polygons_without_marker(), 2u);
}

TEST(Figures, NumbersForOtherPrograms) {
  const std::string csv = figure_csv(testing::sample_results({{"alibi", 5, 0}, {"learned", 6, 0.1}}));
  EXPECT_EQ(
      csv.rfind("length,alibi,alibi_low,alibi_high,learned,learned_low,learned_high\n128,5,nan,nan,6,nan,nan\n160,", 0),
      0u)
      << csv;
  EXPECT_NE(csv.find(",nan,nan,nan\n"), std::string::npos) << csv;

  CompareResults labelled = testing::sample_results({{"alibi", 5, 0}});
  labelled.methods.front().name = R"(alibi, 2^-4 "flat")";
  const std::string name = R"(alibi, 2^-4 ""flat"")";
  EXPECT_EQ(figure_csv(labelled).rfind(fmt::format(R"(length,"{0}","{0}_low","{0}_high")", name), 0), 0u);
}

TEST(Figures, TheFileHasFixedColoursThePageHasVariables) {
  const CompareResults results = testing::sample_results();
  EXPECT_EQ(figure_svg(results).find("var("), std::string::npos);
  EXPECT_NE(figure_svg(results).find("#FFFFFF"), std::string::npos);
  EXPECT_NE(draw(perplexity_chart(results), page_theme(), false).find("var(--alibi)"), std::string::npos);
}

TEST(Figures, TheScaleFollowsTheRange) {
  EXPECT_FALSE(perplexity_chart(testing::sample_results()).y.logarithmic);
  const LineChart wide = perplexity_chart(testing::sample_results({{"alibi", 5, 0}, {"sinusoidal", 5, 3.5}}));
  EXPECT_TRUE(wide.y.logarithmic);
  EXPECT_NE(wide.y_label.find("log scale"), std::string::npos);
  // Differences of a percent must not fill the figure.
  const LineChart close = perplexity_chart(testing::sample_results({{"alibi", 5, 0}, {"rotary", 5.01, 0}}));
  EXPECT_GE(close.y.high / close.y.low, 1.15);
}

TEST(Figures, BandsHaveTheirPlaceButDoNotTakeAll) {
  CompareResults results = testing::sample_results({{"alibi", 5, 0}, {"rotary", 5.5, 0}});
  for (MethodResults& method : results.methods) {
    method.seeds = {0, 1};
    for (EvaluationPoint& point : method.evaluations) {
      point.interval = {point.nll - std::log(1.05), point.nll + std::log(1.05)};
    }
  }
  const LineChart chart = perplexity_chart(results);
  for (const Series& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      EXPECT_GT(point.band.low, chart.y.low);
      EXPECT_LT(point.band.high, chart.y.high);
    }
  }
  EXPECT_NE(chart.subtitle.find("means of 2 seeds"), std::string::npos);
  results.methods[0].seeds.push_back(2);
  EXPECT_NE(perplexity_chart(results).subtitle.find("means of 2 to 3 seeds"), std::string::npos);
  results.methods[0].evaluations.back().interval = {-9, 9};  // two seeds that are far apart
  const LineChart limited = perplexity_chart(results);
  EXPECT_GT(limited.y.low, 3);
  EXPECT_LT(limited.y.high, 8);
}

TEST(Svg, RefusesNumbersThatAreNotFinite) {
  Svg svg("x", 10, 10, "t", "d");
  EXPECT_THROW(svg.line({0, NAN}, {1, 1}, {"red", 1, ""}), Error);
  EXPECT_THROW(svg.path({{0, 0}, {INFINITY, 1}}, {"red", 1, ""}), Error);
}

}  // namespace
}  // namespace alibi::report
