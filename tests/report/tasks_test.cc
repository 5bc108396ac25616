#include "report/tasks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/html.h"
#include "report/json.h"
#include "report/map.h"
#include "report/markup_check.h"
#include "report/statistics.h"
#include "report/summarize.h"
#include "report/summary.h"

namespace alibi::report {
namespace {

/// A run that answers everything up to a distance at each length: {length, distance}.
RunResults run_of(const std::string& method, const std::vector<std::pair<int64_t, int64_t>>& reached) {
  RunResults run;
  run.method = method;
  run.train_length = 64;
  run.task = {.name = "recall", .meaning = "a value", .chance = 0.1, .points = {}};
  for (const auto& [length, most] : reached) {
    for (int64_t distance = 16; distance <= length; distance *= 2) {
      run.task.points.push_back({.length = length,
                                 .distance = distance,
                                 .questions = 100,
                                 .right = distance <= most ? 99 : 40,
                                 .interval = {}});
    }
  }
  return run;
}

CompareResults results_of(const std::vector<RunResults>& runs) {
  CompareResults results;
  results.train_length = 64;
  take_runs(results, runs);
  return results;
}

TEST(ReportTasks, WilsonIntervals) {  // values of scipy.stats.binomtest(...).proportion_ci(method="wilson")
  EXPECT_NEAR(wilson(95, 100).low, 0.88825, 1e-5);
  EXPECT_NEAR(wilson(95, 100).high, 0.97846, 1e-5);
  EXPECT_NEAR(wilson(10, 10).low, 0.72247, 1e-5);
  EXPECT_NEAR(wilson(10, 10).high, 1, 1e-12);
  EXPECT_NEAR(wilson(0, 10).low, 0, 1e-12);
}

TEST(ReportTasks, TheLargestLengthAndDistanceAreThoseUpToWhichAMethodAnswers) {
  const auto reach = [](const std::vector<std::pair<int64_t, int64_t>>& reached) {
    const MethodResults found = results_of({run_of("alibi", reached)}).tasks.at(0).methods.at(0);
    return std::pair(found.largest_length, found.largest_distance);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(reach({{64, 32}, {128, 64}, {256, 16}}), Pair(256, 64));
  EXPECT_EQ(reach({{64, 64}, {128, 0}, {256, 256}}), Pair(64, 64));
  EXPECT_EQ(reach({{64, 0}, {128, 128}}), Pair(0, 0));
  EXPECT_EQ(reach({{64, 64}}), Pair(64, 64));
}

TEST(ReportTasks, OneSeedThatFailsWidensTheInterval) {
  std::vector<RunResults> runs(5, run_of("alibi", {{64, 64}}));
  for (size_t i = 0; i < runs.size(); ++i) runs[i].seed = i;
  const AnswerPoint alike = results_of(runs).tasks[0].methods[0].task.points[0];
  EXPECT_EQ(alike.questions, 500);
  EXPECT_GT(alike.interval.low, kReliable);
  for (AnswerPoint& point : runs[2].task.points) point.right = 50;
  const AnswerPoint apart = results_of(runs).tasks[0].methods[0].task.points[0];
  EXPECT_LT(apart.interval.low, kReliable);
  EXPECT_LT(apart.interval.low, wilson(apart.right, apart.questions).low);
}

TEST(ReportTasks, ControlsThatDoNotBehaveAreWarnedOf) {
  const auto warning = [](const std::string& task, const std::vector<std::pair<int64_t, int64_t>>& reached) {
    std::vector<RunResults> runs = {run_of("alibi", reached), run_of("t5", reached), run_of("none", {{64, 32}})};
    for (RunResults& run : runs) run.task.name = task;
    const CompareResults results = results_of(runs);
    const std::string note = control_note(results.tasks[0]);
    EXPECT_EQ(task_sentences(results).front() == note, !note.empty());
    EXPECT_EQ(nlohmann::json::parse(to_json(results))["tasks"][0].value("warning", ""), note);
    return note.substr(0, note.find('.'));
  };
  EXPECT_EQ(warning("recall", {{64, 0}}), "");
  EXPECT_EQ(warning("repeat", {{64, 64}}), "");
  EXPECT_EQ(warning("repeat", {{64, 0}}), "Warning: alibi and t5 have not learned to repeat, which every method can");
  EXPECT_EQ(warning("parity", {{64, 64}, {128, 64}}), "");
  EXPECT_EQ(warning("parity", {{64, 64}, {128, 128}}),
            "Warning: alibi and t5 answer parity farther than the training length, which hardly any transformer can");
}

TEST(ReportTasks, TheFileHasTheAccuracyOfEachSeed) {
  std::vector<RunResults> runs(3, run_of("alibi", {{64, 64}}));
  for (size_t i = 0; i < runs.size(); ++i) runs[i].seed = i;
  runs[1].task.points[0].right = 90;
  const nlohmann::json task = nlohmann::json::parse(to_json(results_of(runs)))["tasks"][0];
  const nlohmann::json& point = task["methods"][0]["points"][0];
  EXPECT_EQ(point["seed_accuracies"], (std::vector{0.99, 0.9, 0.99}));
  EXPECT_DOUBLE_EQ(point["accuracy"].get<double>(), 0.96);
  EXPECT_FALSE(task.contains("warning"));
}

TEST(ReportTasks, TheMapHasAPointForEachMethodOnTextAndTasks) {
  std::vector<RunResults> runs;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const int64_t most : {64, 0}) {
      RunResults run = run_of(most == 0 ? "none" : "alibi", {{64, most}});
      run.seed = seed;
      run.task.points[1].right = most == 0 ? 40 : 93 - static_cast<int64_t>(seed);  // the mean is above 90 %
      run.answers = {run.task};
      run.task = {};
      run.evaluations = {{.length = 64, .nll = 2 + 0.01 * static_cast<double>(seed), .perplexity = 7}};
      runs.push_back(run);
    }
  }
  const CompareResults results = results_of(runs);
  ASSERT_EQ(results.tasks.size(), 1u);
  EXPECT_TRUE(results.tasks[0].beside_text);
  EXPECT_EQ(results.runs_done(), 6);
  EXPECT_EQ(runs_of(results).size(), 6u);
  const std::optional<LineChart> map = map_chart(results);
  ASSERT_TRUE(map);
  ASSERT_EQ(map->series.size(), 2u);
  const ChartPoint alibi = map->series[0].points.at(0), none = map->series[1].points.at(0);
  EXPECT_EQ(alibi.x, 64);
  EXPECT_EQ(alibi.x_band.low, results.tasks[0].methods[0].largest_distance);
  EXPECT_EQ(alibi.x_band.low, 16);
  EXPECT_EQ(alibi.x_band.high, 64);
  EXPECT_NEAR(alibi.y, std::exp(2.01), 1e-9);
  EXPECT_LT(alibi.band.low, alibi.y);
  EXPECT_EQ(none.x, 8);
  EXPECT_EQ(map->x.ticks.front().label, "none");
  const std::string page = report_html(results), svg = draw(*map, print_theme(), true);
  EXPECT_NO_THROW(testing::MarkupReader(svg, true).read());
  EXPECT_NE(page.find("id=\"map-title\""), std::string::npos);
  EXPECT_NE(page.find("Recall beside text: a value"), std::string::npos);
  EXPECT_FALSE(map_chart(results_of({run_of("alibi", {{64, 64}})})));
}

TEST(ReportTasks, ThePageNamesTheFarthestFirst) {
  const CompareResults results =
      results_of({run_of("alibi", {{64, 64}, {128, 64}}), run_of("rotary", {{64, 64}, {128, 0}}),
                  run_of("rotary+alibi", {{64, 64}, {128, 128}}), run_of("none", {{64, 0}, {128, 0}})});
  const std::string expected =
      "Recall: rotary+alibi answers up to distance 128 and in texts of up to 128 tokens; alibi answers up to distance "
      "64 and in texts of up to 128 tokens; rotary answers up to distance 64 and in texts of up to 64 tokens; none "
      "does not "
      "answer reliably at its training length.";
  const std::string seed = "The answers are from one seed; another seed may answer less far, so give more --seeds.";
  EXPECT_EQ(task_sentences(results), (std::vector{expected, seed}));
  CompareResults many = results;
  many.tasks.insert(many.tasks.end(), 2, results.tasks.front());
  std::vector<std::string> short_ones(
      3, "Recall: rotary+alibi answers up to distance 128 and in texts of up to 128 tokens.");
  short_ones.push_back(seed);
  EXPECT_EQ(task_sentences(many), short_ones);
  EXPECT_EQ(task_sentences(results_of({run_of("t5", {{64, 0}}), run_of("none", {{64, 0}})})).front(),
            "Recall: t5 and none do not answer reliably at their training length.");
  const std::string page = report_html(results);
  EXPECT_NE(page.find(expected), std::string::npos);
  EXPECT_NE(page.find("<section aria-labelledby=\"perplexity-heading\" hidden=\"\">"), std::string::npos);
  EXPECT_NO_THROW(testing::MarkupReader(tasks_section(results), true).read());
  const LineChart chart = accuracy_chart(results.tasks[0]);
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(chart.series[0].points.size(), 4u);  // 16, 32, 64 and 128
  EXPECT_EQ(chart.level, 10);
}

}  // namespace
}  // namespace alibi::report
