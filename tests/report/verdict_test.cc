#include "report/verdict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/sample_results.h"

namespace alibi {
namespace {

struct Curve {
  std::string name;
  std::vector<double> perplexity;  ///< at 128, 256, 1024; fewer: not tried; NaN: not finite; 0: a gap
};

std::string verdict_of(const std::vector<Curve>& curves) {
  CompareResults results;
  results.train_length = 128;
  for (const Curve& curve : curves) {
    MethodResults method;
    method.name = curve.name;
    const int64_t lengths[] = {128, 256, 1024};
    for (size_t i = 0; i < curve.perplexity.size(); ++i) {
      EvaluationPoint point;
      point.length = lengths[i];
      point.perplexity = curve.perplexity[i];
      if (point.perplexity == 0) point.gap = "cannot";
      method.evaluations.push_back(point);
    }
    results.methods.push_back(method);
  }
  return verdict(results);
}

TEST(Verdict, TheCaseOfThePaper) {
  EXPECT_EQ(verdict_of({{"alibi", {5.75, 5.7, 5.64}},
                        {"sinusoidal", {5.8, 8, 12.76}},
                        {"rotary", {5.7, 6, 7.98}},
                        {"t5", {5.7, 5.75, 5.8}}}),
            "Trained at 128, alibi's perplexity went from 5.75 at 128 to 5.64 at 1024 (8x), while sinusoidal's rose "
            "2.2-fold and rotary's by 40 %; t5's stayed within 2 %.");
}

TEST(Verdict, AlibiMayImproveOrLose) {
  EXPECT_EQ(
      verdict_of({{"alibi", {6, 5.7, 5.1}}, {"none", {6, 5, 5.4}}}),
      "Trained at 128, alibi's perplexity fell from 6.00 at 128 to 5.10 at 1024 (8x), while none's fell by 10 %.");
  EXPECT_EQ(verdict_of({{"alibi", {6, 7, 9}}, {"none", {6, 6, 6}}}),
            "Trained at 128, alibi's perplexity rose from 6.00 at 128 to 9.00 at 1024 (8x); none's stayed within 1 %.");
}

TEST(Verdict, NoContrastWhereNothingMoved) {
  EXPECT_EQ(verdict_of({{"alibi", {5.75, 5.75, 5.751}}, {"rotary", {5.75, 5.76, 5.74}}}),
            "Trained at 128, alibi's perplexity went from 5.750 at 128 to 5.751 at 1024 (8x); rotary's stayed within "
            "1 %.");
}

TEST(Verdict, ThreePercentIsTheLimit) {
  const auto of_none = [](double last) {
    const std::string text = verdict_of({{"alibi", {5, 5, 4.5}}, {"none", {5, 5, last}}});
    return text.substr(text.find("none's"));
  };
  EXPECT_EQ(of_none(5.14), "none's stayed within 3 %.");
  EXPECT_EQ(of_none(4.86), "none's stayed within 3 %.");
  EXPECT_EQ(of_none(5.07), "none's stayed within 2 %.") << "1.4 %: a limit is rounded up";
  EXPECT_EQ(of_none(5.2), "none's rose by 4 %.");
  EXPECT_EQ(of_none(4.8), "none's fell by 4 %.");
  EXPECT_EQ(of_none(7.45), "none's rose by 49 %.");
  EXPECT_EQ(of_none(7.5), "none's rose 1.5-fold.");
}

TEST(Verdict, ADetourIsNotCalledLevel) {
  EXPECT_EQ(verdict_of({{"alibi", {6, 6, 6}}, {"none", {6, 9, 6}}}),
            "Trained at 128, alibi's perplexity went from 6.000 at 128 to 6.000 at 1024 (8x); none's ended within 3 % "
            "of the start.");
}

TEST(Verdict, GapsAndBrokenRuns) {
  EXPECT_EQ(verdict_of({{"alibi", {6, 6, 5.9}},
                        {"learned", {6, 0, 0}},
                        {"rotary", {6, 7, NAN}},
                        {"t5", {NAN, NAN, NAN}},
                        {"none", {6, 60, 90000}}}),
            "Trained at 128, alibi's perplexity went from 6.00 at 128 to 5.90 at 1024 (8x), while none's rose "
            "15,000-fold; rotary's was not a finite number at 1024; learned gave no result past 128; t5 gave no result "
            "at 128.");
}

TEST(Verdict, WithoutAlibiNothingIsSaidAboutIt) {
  EXPECT_EQ(
      verdict_of({{"sinusoidal", {6, 9, 12}}, {"rotary", {6, 6, 6.06}}}),
      "Perplexity from the training length, 128, to 1024 (8x): sinusoidal's rose 2.0-fold; rotary's stayed within "
      "1 %.");
  // alibi is there, but was not measured past the training length.
  const std::string text = verdict_of({{"alibi", {6, NAN, NAN}}, {"rotary", {6, 7, 12}}});
  EXPECT_EQ(text.rfind("Perplexity from the training length, 128, to 1024 (8x): rotary's rose 2.0-fold", 0), 0u)
      << text;
  EXPECT_NE(text.find("alibi's was not a finite number at 1024"), std::string::npos) << text;
}

TEST(Verdict, OnlyTheTrainingLength) {
  EXPECT_EQ(
      verdict_of({{"alibi", {5.75}}, {"rotary", {5.8}}}),
      "At the training length, 128, perplexity was 5.75 (alibi) and 5.80 (rotary); no longer length was measured.");
  EXPECT_EQ(verdict_of({{"alibi", {NAN}}}), "Trained at 128, but no perplexity was measured there.");
  EXPECT_EQ(verdict(CompareResults{}), "No method was compared.");
}

TEST(Verdict, OneMethod) {
  EXPECT_EQ(verdict_of({{"alibi", {25.04, 24, 22.1}}}),
            "Trained at 128, alibi's perplexity fell from 25.0 at 128 to 22.1 at 1024 (8x).");
}

TEST(Verdict, IsAlwaysOneSentence) {
  for (const double growth : {-0.2, 0.0, 0.01, 0.3, 3.0}) {
    const std::string text = verdict(testing::sample_results({{"alibi", 5, growth}, {"rotary", 5, -growth}}));
    EXPECT_EQ(text.find(". "), std::string::npos) << text;
    EXPECT_EQ(text.back(), '.') << text;
    EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace alibi
