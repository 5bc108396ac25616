#include "report/summarize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/merge.h"
#include "report/sample_results.h"
#include "report/theme.h"
#include "testing.h"

namespace alibi::report {
namespace {

RunResults run_of(const std::string& method, uint64_t seed, double short_nll, double long_nll, int64_t length = 128) {
  RunResults run;
  run.method = method;
  run.train_length = length;
  run.seed = seed;
  run.train_tokens_per_second = 1000 + static_cast<double>(seed);
  for (const auto& [at, nll] : {std::pair(length, short_nll), std::pair(8 * length, long_nll)}) {
    EvaluationPoint point;
    point.length = point.stride = at;
    point.nll = nll;
    point.perplexity = std::exp(nll);
    point.bits_per_byte = nll / std::log(2.0);
    run.evaluations.push_back(point);
  }
  return run;
}

TEST(Summarize, MeansOverSeedsOfPerplexityTheGeometricOne) {
  const std::vector<MethodResults> methods =
      methods_of({run_of("alibi", 1, 2.0, 1.8), run_of("none", 0, 2, 3), run_of("alibi", 0, 2.2, 1.9)}, {});
  ASSERT_EQ(methods.size(), 2u);
  const MethodResults& alibi = methods[0];
  EXPECT_EQ(alibi.name, "alibi");
  EXPECT_EQ(alibi.seeds, (std::vector<uint64_t>{0, 1}));
  EXPECT_NEAR(alibi.evaluations[0].nll, 2.1, 1e-12);
  EXPECT_NEAR(alibi.evaluations[0].perplexity, std::exp(2.1), 1e-12);
  EXPECT_NEAR(alibi.evaluations[0].deviation, std::sqrt(0.02), 1e-12);
  EXPECT_NEAR(alibi.evaluations[0].interval.high, 2.1 + 12.706204736174698 * 0.1, 1e-9);
  EXPECT_EQ(alibi.train_tokens_per_second, 1000.5);
  EXPECT_TRUE(std::isnan(methods[1].evaluations[0].deviation));
}

TEST(Summarize, DifferencesArePairedBySeed) {
  CompareResults results;
  results.train_length = 128;
  // Seeds differ by far more than methods do.
  results.methods = methods_of({run_of("a", 0, 1, 1), run_of("b", 0, 1.1, 1.2), run_of("a", 1, 3, 3),
                                run_of("b", 1, 3.1, 3.21), run_of("a", 2, 2, 2), run_of("b", 2, 2.1, 2.19)},
                               {});
  const auto found = difference({}, results.methods[0], 1024, results.methods[1], 1024);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->nll, 0.2, 1e-12);
  EXPECT_EQ(found->seeds, 3u);
  EXPECT_TRUE(found->is_sure());
  EXPECT_NEAR(found->interval.high, 0.2 + 4.302652729749464 * 0.01 / std::sqrt(3), 1e-9);
  EXPECT_FALSE(difference({}, results.methods[0], 128, results.methods[0], 512).has_value());
  const AgainstBest apart = against_best(results, 1024);
  EXPECT_EQ(apart.best, &results.methods[0]);
  EXPECT_FALSE(apart.others[0].has_value());
  EXPECT_NEAR(apart.others[1]->nll, 0.2, 1e-12);
}

TEST(Summarize, SeveralTrainingLengthsAreLinesOfTheirOwn) {
  const std::vector<MethodResults> methods = methods_of({run_of("a", 0, 1, 1), run_of("a", 0, 1, 1, 256)}, {});
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_EQ(methods[0].name, "a@128");
  EXPECT_EQ(methods[1].name, "a@256");
}

TEST(Summarize, TheEarlyTokenCurseIsWhatIsLeftOfTheGain) {
  RunResults run = run_of("a", 0, 2.0, 1.8);
  run.context = {{128, 1.70, {}, {}}, {1024, 1.65, {}, {}}};
  std::optional<EarlyTokenCurse> curse = early_token_curse({}, methods_of({run}, {})[0]);
  ASSERT_TRUE(curse.has_value());
  EXPECT_NEAR(curse->gain, 0.2, 1e-12);
  EXPECT_NEAR(curse->with_text, 0.05, 1e-12);
  EXPECT_NEAR(curse->share, 0.75, 1e-12);
  RunResults small = run_of("a", 0, 2.0, 1.99);
  small.context = run.context;
  EXPECT_FALSE(early_token_curse({}, methods_of({small}, {})[0]).has_value()) << "a gain of 0.01 nats";
  run.context.clear();
  EXPECT_FALSE(early_token_curse({}, methods_of({run}, {})[0]).has_value());
  run = run_of("a", 0, 2.0, 2.1);
  run.context = {{128, 1.70, {}, {}}, {1024, 1.65, {}, {}}};
  EXPECT_FALSE(early_token_curse({}, methods_of({run}, {})[0]).has_value()) << "nothing was gained";
  // A gain that the seeds do not agree on.
  std::vector<RunResults> runs{run_of("a", 0, 2.0, 1.8), run_of("a", 1, 2.0, 2.1), run_of("a", 2, 2.0, 1.9)};
  for (RunResults& of_seed : runs) of_seed.context = run.context;
  EXPECT_FALSE(early_token_curse({}, methods_of(runs, {})[0]).has_value());
}

TEST(Merge, RunsOfSeveralComparisonsAreOne) {
  CompareResults one = testing::sample_results({{"alibi", 5, 0}, {"none", 6, 0}}), two = one;
  for (MethodResults& method : two.methods) method.runs[0].seed = 2;
  std::vector<RunResults> runs;
  for (const MethodResults& method : two.methods) runs.push_back(method.runs[0]);
  two.methods = methods_of(runs, two.held_out);
  two.settings[0].second = "0.004";
  const CompareResults both = merge({{"one", one}, {"two", two}, {"again", one}});
  ASSERT_EQ(both.methods.size(), 2u);
  EXPECT_EQ(both.methods[0].seeds, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(both.runs_done(), 4);
  EXPECT_EQ(both.settings[0].second, "one: 0.002, cosine to 0.0002; two: 0.004; again: 0.002, cosine to 0.0002");
  EXPECT_EQ(both.settings[1].second, one.settings[1].second);

  CompareResults other = one;
  other.methods[0].runs[0].evaluations[0].nll += 0.1;
  const CompareResults labelled = merge({{"one", one}, {"other", other, "changed"}});
  ASSERT_EQ(labelled.methods.size(), 4u);
  EXPECT_EQ(labelled.methods[2].name, "alibi, changed");
  EXPECT_EQ(style_of(labelled.methods[2].name).name, "alibi");
  test::expect_error<Error>([&] { merge({{"one", one}, {"other", other}}); }, "different results");
  other = one;
  other.held_out.bytes = 5;
  test::expect_error<Error>([&] { merge({{"one", one}, {"other", other}}); }, "the scored text in bytes is 0");
}

}  // namespace
}  // namespace alibi::report
