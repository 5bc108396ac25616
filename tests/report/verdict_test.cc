#include "report/verdict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/sample_results.h"

namespace alibi::report {
namespace {

struct Curve {
  std::string name;
  std::vector<double> perplexity;   ///< at 128, 256, 1024; fewer: not tried; NaN: not finite; 0: a gap
  std::vector<double> blocks = {};  ///< what the nll of the blocks of text differ by; empty: blocks are not known
};

RunResults run_of(const Curve& curve, uint64_t seed) {
  RunResults run;
  run.method = curve.name;
  run.train_length = 128;
  run.seed = seed;
  const int64_t lengths[] = {128, 256, 1024};
  for (size_t i = 0; i < curve.perplexity.size(); ++i) {
    EvaluationPoint point;
    point.length = point.stride = lengths[i];
    point.perplexity = curve.perplexity[i];
    point.nll = std::log(point.perplexity);
    if (point.perplexity == 0) point.gap = "cannot";
    for (const double block : curve.blocks) point.block_nll.push_back(100 * (point.nll + block));
    run.evaluations.push_back(point);
  }
  return run;
}

/// The curves of each seed, from 0.
CompareResults results_of(const std::vector<std::vector<Curve>>& seeds) {
  CompareResults results;
  results.train_length = 128;
  std::vector<RunResults> runs;
  for (size_t seed = 0; seed < seeds.size(); ++seed) {
    for (const Curve& curve : seeds[seed]) {
      runs.push_back(run_of(curve, seed));
      results.held_out.block_tokens.assign(curve.blocks.size(), 100);
    }
  }
  results.methods = methods_of(runs, results.held_out);
  return results;
}

std::string verdict_of(const std::vector<std::vector<Curve>>& seeds) { return verdict(results_of(seeds)); }

TEST(Verdict, ClaimsWhatTheIntervalsOfTheSeedsCarry) {
  EXPECT_EQ(verdict_of({{{"alibi", {5.75, 5.7, 5.64}}, {"sinusoidal", {5.8, 8, 12.7}}, {"rotary", {5.6, 6, 7.9}}},
                        {{"alibi", {5.85, 5.8, 5.73}}, {"sinusoidal", {5.9, 8, 12.8}}, {"rotary", {5.7, 6, 8.0}}},
                        {{"alibi", {5.65, 5.6, 5.55}}, {"sinusoidal", {5.7, 8, 12.9}}, {"rotary", {5.5, 6, 8.1}}}}),
            "At 1024, 8 times the training length, alibi has the lowest perplexity, 5.640 (5.420 to 5.868); the next, "
            "rotary, has 8.000 (+41.8 %). From the training length to 1024: alibi stays level, from 5.749 to 5.640 "
            "(-1.9 %); sinusoidal rises from 5.799 to 12.80 (×2.21); rotary rises from 5.599 to 8.000 (+42.9 %). At "
            "128, rotary has the lowest perplexity, 5.599 (5.356 to 5.853); the next, alibi, has 5.749 (+2.7 %). The "
            "numbers are means over 3 seeds (0, 1, 2) with 95 % intervals between seeds.");
}

TEST(Verdict, WhatTheSeedsDoNotTellApartIsNamedTogether) {
  const std::string text = verdict_of({{{"alibi", {6, 6, 5.0}}, {"none", {6, 6, 5.2}}, {"t5", {6, 6, 6}}},
                                       {{"alibi", {6, 6, 5.3}}, {"none", {6, 6, 5.2}}, {"t5", {6, 6, 7}}}});
  EXPECT_NE(text.find("alibi has the lowest perplexity, 5.148"), std::string::npos) << text;
  EXPECT_NE(text.find(", but none (5.200) and t5 (6.481) may be as low, because the intervals overlap."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("alibi goes from 6.000 to 5.148 (-14.2 %), but the interval of this change"), std::string::npos)
      << text;
  EXPECT_NE(text.find("does not show whether it rises or falls"), std::string::npos) << text;
  EXPECT_NE(text.find("At 128, alibi has the lowest perplexity, 6.000"), std::string::npos) << text;
}

TEST(Verdict, OfOneSeedIntervalsAreOverTheText) {
  std::vector<double> blocks, other;
  for (int i = 0; i < 20; ++i) blocks.push_back(0.1 * std::sin(i));
  for (int i = 0; i < 20; ++i) other.push_back(0.1 * std::cos(5 * i));
  // The same blocks: their spread goes out of the difference.
  const std::string sure = verdict_of({{{"alibi", {6, 6, 5}, blocks}, {"none", {6, 6, 5.1}, blocks}}});
  EXPECT_NE(sure.find("; the next, none, has 5.100 (+2.0 %)"), std::string::npos) << sure;
  EXPECT_NE(sure.find("one seed (0), with 95 % intervals over blocks of the held-out text. Another seed may differ"),
            std::string::npos)
      << sure;
  const std::string unsure = verdict_of({{{"alibi", {6, 6, 5}, blocks}, {"none", {6, 6, 5.1}, other}}});
  EXPECT_NE(unsure.find("but none (5.100) may be as low"), std::string::npos) << unsure;
}

TEST(Verdict, TheBestIsNamedWhoeverItIs) {
  const std::string text = verdict_of({{{"alibi", {6, 6, 6}}, {"t5", {6, 6, 5}}}});
  EXPECT_EQ(
      text.rfind("At 1024, 8 times the training length, t5 has the lowest perplexity, 5.000; the next, alibi, has "
                 "6.000 (+20.0 %).",
                 0),
      0u)
      << text;
  EXPECT_NE(text.find("The numbers are from one seed (0) and have no intervals."), std::string::npos) << text;
}

TEST(Verdict, StayingAtABadPerplexityIsNoSuccess) {
  const std::string text = verdict_of({{{"alibi", {330, 332, 331}}, {"rotary", {137, 150, 180}}},
                                       {{"alibi", {331, 332, 332}}, {"rotary", {138, 150, 181}}}});
  EXPECT_NE(text.find("rotary has the lowest perplexity"), std::string::npos) << text;
  EXPECT_NE(text.find("alibi stays level, from 330.5 to 331.5 (+0.3 %), which is poor: the best method has 137.5 at "
                      "the training length"),
            std::string::npos)
      << text;
}

TEST(Verdict, ADetourIsNotCalledLevel) {
  const std::vector<Curve> curves{{"alibi", {6, 6, 6}}, {"none", {6, 9, 6}}};
  const std::string text = verdict_of({curves, curves});
  EXPECT_NE(text.find("alibi stays level, from 6.000 to 6.000 (+0.0 %); none ends near its start"), std::string::npos)
      << text;
}

TEST(Verdict, GapsAndBrokenRuns) {
  EXPECT_EQ(
      verdict_of({{{"alibi", {6, 6, 5.9}},
                   {"learned", {6, 0, 0}},
                   {"rotary", {6, 7, NAN}},
                   {"t5", {NAN, NAN, NAN}},
                   {"none", {6, 60, 90000}}}}),
      "At 1024, 8 times the training length, alibi has the lowest perplexity, 5.900; the next, none, has 90,000 "
      "(×15,254). From the training length to 1024: alibi goes from 6.000 to 5.900 (-1.7 %); learned has no result "
      "past 128; rotary gives no finite number; t5 has no result at 128; none rises from 6.000 to 90,000 (×15,000). "
      "At 128, alibi has the lowest perplexity, 6.000; the next, learned, has 6.000 (+0.0 %). The numbers are from one "
      "seed (0) and have no intervals.");
}

TEST(Verdict, OnlyTheTrainingLength) {
  EXPECT_EQ(
      verdict_of({{{"alibi", {5.75}}, {"rotary", {5.8}}}}),
      "At the training length, 128, alibi has the lowest perplexity, 5.750; the next, rotary, has 5.800 (+0.9 %). No "
      "longer length was measured. The numbers are from one seed (0) and have no intervals.");
  EXPECT_EQ(verdict_of({{{"alibi", {NAN}}}}).rfind("No perplexity was measured at the training length, 128.", 0), 0u);
  EXPECT_EQ(verdict(CompareResults{}), "No method was compared.");
}

TEST(Verdict, MethodsThatHaveNotLearnedAreCalledSo) {
  CompareResults results = results_of(
      {{{"alibi", {9, 9, 30}}, {"sinusoidal", {25.4, 25.4, 25.4}}, {"t5", {13.7, 14, 14}}, {"none", {9.5, 9, 40}}}});
  EXPECT_NE(verdict(results).find("t5 has the lowest perplexity, 14.00"), std::string::npos);
  results.held_out.bigram_nll = std::log(14.0);  // t5 comes near it, sinusoidal stays above
  const std::string text = verdict(results);
  EXPECT_EQ(text.rfind("At 1024, 8 times the training length, of the methods that have learned, alibi has the lowest "
                       "perplexity, 30.00; the next, none, has 40.00",
                       0),
            0u)
      << text;
  EXPECT_NE(
      text.find("sinusoidal (25.40) and t5 (13.70) have not learned yet: at the training length, a table of "
                "token pairs counted on the training text predicts the held-out text about as well or better "
                "(perplexity 14.00). Results at other lengths mean nothing until they learn. Train longer, with more "
                "--train-tokens."),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("sinusoidal stays"), std::string::npos) << text;
  EXPECT_EQ(text.find("t5 goes"), std::string::npos) << text;

  results.held_out.bigram_nll = std::log(9.0);
  const std::string none = verdict(results);
  EXPECT_EQ(none.rfind("No method has learned enough to be compared.", 0), 0u) << none;
  EXPECT_EQ(none.find("lowest"), std::string::npos) << none;
}

TEST(Verdict, ShortTrainingIsSaidFirst) {
  CompareResults results = results_of({{{"alibi", {9, 9, 9}}, {"t5", {8, 8, 8}}}});
  for (MethodResults& method : results.methods) method.train_tokens = 198'656;
  EXPECT_EQ(verdict(results).find("advised"), std::string::npos) << "not known";
  results.advised_tokens = 1'000'000;
  results.notes = {"The position weights of t5 have 64 times the learning rate of the other weights."};
  const std::string text = verdict(results);
  EXPECT_EQ(
      text.rfind("Trained on 198,656 of the advised 1,000,000 tokens, so the order of the methods may be another after "
                 "more training. At 1024, ",
                 0),
      0u)
      << text;
  EXPECT_NE(text.find(" The position weights of t5 have 64 times the learning rate"), std::string::npos) << text;
  for (MethodResults& method : results.methods) method.train_tokens = 999'424;  // whole updates of a million
  EXPECT_EQ(verdict(results).find("advised"), std::string::npos) << verdict(results);
}

TEST(Verdict, SeedsThatAreNotAllThereAreNamed) {
  const std::string text = verdict_of({{{"alibi", {6, 6, 5.9}}, {"none", {6, 7, 9}}}, {{"alibi", {6, 6, 5.8}}}});
  EXPECT_NE(text.find("Not all runs are finished"), std::string::npos) << text;
}

TEST(Verdict, IsAlwaysNumbers) {
  for (const double growth : {-0.2, 0.0, 0.01, 0.3, 3.0}) {
    const std::string text = verdict(testing::sample_results({{"alibi", 5, growth}, {"rotary", 5, -growth}}));
    EXPECT_EQ(text.back(), '.') << text;
    EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace alibi::report
