#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "alibi/compare.h"
#include "alibi/results.h"
#include "compare/short_run.h"
#include "compare/task_run.h"
#include "core/files.h"
#include "report/json.h"
#include "report/merge.h"
#include "report/tables.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/batches.h"

namespace alibi::comparison {
namespace {

using test::TemporaryFolder;

/// The next byte of an answer and how far back what it follows from stands.
struct Solution {
  char answer;
  int64_t distance;
};

/// Reads the text from its start, as a person would who was told the rules.
Solution solve(const std::string& task, const std::string& before) {
  const auto at = [&](size_t place) {
    return Solution{before[place], std::ssize(before) - static_cast<int64_t>(place)};
  };
  if (task == "recall" || task == "updates") {
    const char key = before.back();
    size_t found = std::string::npos;
    for (size_t i = 0; i + 1 < before.size(); ++i) {
      if (before[i] == key && before[i + 1] >= '0' && before[i + 1] <= '9') found = i + 1;
    }
    return at(found);
  }
  if (task == "passkey") return at(before.find('#') + before.size() - before.rfind('#'));
  if (task == "flipflop") return at(before.rfind('w') + 1);
  if (task == "copy") return at(before.rfind('[') + before.size() - before.rfind('>'));
  if (task == "parity") {
    const size_t begin = before.rfind(';') == std::string::npos ? 0 : before.rfind(';') + 1;
    const auto ones = std::count(before.begin() + static_cast<int64_t>(begin), before.end(), '1');
    return {ones % 2 == 0 ? '0' : '1', at(begin).distance};
  }
  return at(before.size() - 1);
}

std::string bytes_of(const std::vector<int32_t>& ids, size_t begin, size_t end) {
  std::string bytes;
  for (size_t i = begin; i < end; ++i) bytes += static_cast<char>(ids[i]);
  return bytes;
}

const std::string& hiding() {
  static const std::string text = [] {
    std::string lines;
    for (int i = 0; i < 300; ++i) lines += "line #" + std::to_string(i) + " of a text that hides something\n";
    return lines;
  }();
  return text;
}

TEST(Tasks, EachAnswerIsWhatTheRulesSayAndTheDistanceIsAsAsked) {
  for (const Task& task : all_tasks()) {
    for (const int64_t length : {16, 33, 64, 200}) {
      for (const char* filler : {"", hiding().c_str()}) {
        const TaskSettings settings{length, filler};
        int64_t most = 0;
        for (TaskQuestions& questions : planned_questions(task, length)) {
          draw_questions(task, settings, 20, 7, questions);
          ASSERT_EQ(questions.texts.size(), 20u);
          for (const Continuation& text : questions.texts) {
            ASSERT_EQ(std::ssize(text.ids), questions.length) << task.name;
            EXPECT_EQ(text.ids.front(), 256);
            for (int64_t i = text.targets; i > 0; --i) {
              const size_t place = text.ids.size() - static_cast<size_t>(i);
              const auto [answer, distance] = solve(task.name, bytes_of(text.ids, 1, place));
              EXPECT_EQ(answer, static_cast<char>(text.ids[place]))
                  << task.name << ": " << bytes_of(text.ids, 1, place);
              EXPECT_LE(distance, questions.distance) << task.name;
              EXPECT_GE(distance, questions.nearest - (task.name == std::string("flipflop") ? 1 : 0)) << task.name;
              most = std::max(most, distance);
            }
          }
        }
        if (task.name != std::string("repeat")) {
          EXPECT_GT(most, 8 * length) << task.name;
        }
      }
    }
  }
}

TEST(Tasks, TrainingScoresOnlyAnswersThatFollowFromTheSameSequence) {
  for (const Task& task : all_tasks()) {
    for (const int64_t length : {16, 33, 64}) {
      const TaskData data = task_data(task, {length, hiding()}, 50 * length + 3, 7);
      const std::span<const int32_t> tokens = data.data.train.tokens;
      ASSERT_EQ(std::ssize(tokens), 50 * length);
      ASSERT_EQ(data.scored.size(), tokens.size());
      int64_t answers = 0, farthest = 0;
      for (int64_t first = 0; first < std::ssize(tokens); first += length) {
        const std::vector<int32_t> ids(tokens.begin() + first, tokens.begin() + first + length);
        EXPECT_EQ(ids.back(), 256) << task.name;
        for (size_t i = 0; i < ids.size(); ++i) {
          if (data.scored[static_cast<size_t>(first) + i] == 0) continue;
          const auto [answer, distance] = solve(task.name, bytes_of(ids, 0, i));
          EXPECT_EQ(answer, static_cast<char>(ids[i])) << task.name << ": " << bytes_of(ids, 0, i);
          farthest = std::max(farthest, distance);
          ++answers;
        }
      }
      EXPECT_GE(answers, 50) << task.name;
      if (task.name != std::string("repeat")) {
        EXPECT_GT(farthest, length / 4) << task.name;
      }
    }
  }
}

TEST(Tasks, DependOnTheSeedOnly) {
  for (const Task& task : all_tasks()) {
    const TaskSettings settings{32, ""};
    const auto drawn = [&](uint64_t seed) {
      TaskQuestions questions = planned_questions(task, 32).back();
      draw_questions(task, settings, 3, seed, questions);
      return questions.texts[2].ids;
    };
    const auto practice = [&](uint64_t seed) {
      const TaskData data = task_data(task, settings, 320, seed);
      return std::vector<int32_t>(data.data.train.tokens.begin(), data.data.train.tokens.end());
    };
    EXPECT_EQ(drawn(1), drawn(1));
    EXPECT_NE(drawn(1), drawn(2));
    EXPECT_EQ(practice(1), practice(1));
    EXPECT_NE(practice(1), practice(2));
  }
}

TEST(Tasks, UpdatedKeysHaveAnEarlierValueThatIsWrong) {
  int64_t wrong = 0, all = 0;
  for (TaskQuestions& questions : planned_questions(task_from("updates"), 64)) {
    draw_questions(task_from("updates"), {64, ""}, 50, 3, questions);
    for (const Continuation& text : questions.texts) {
      const std::string bytes = bytes_of(text.ids, 1, text.ids.size());
      const size_t first = bytes.find(bytes[bytes.size() - 2]);
      wrong += bytes[first + 1] != bytes.back() ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(wrong, all / 2);
}

/// A comparison of a second on tasks only.
CompareOptions short_tasks() {
  CompareOptions options = compare_defaults("tiny");
  options.tasks = {"repeat", "recall"};
  options.positions = {Position::alibi, Position::learned};
  options.train.train_length = 16;
  options.train.batch_tokens = 256;
  options.task_tokens = 8192;
  options.task_questions = 40;
  options.model.set("layers", 1);
  options.model.set("d_model", 16);
  options.model.set("heads", 2);
  return options;
}

TEST(Tasks, AComparisonWithoutTextHasOnlyTasks) {
  const TemporaryFolder folder;
  CompareOptions options = short_tasks();
  options.out = folder / "out";
  options.train.learning_rate = 0.02;
  const CompareResults results = compare(options);
  EXPECT_TRUE(results.methods.empty());
  EXPECT_EQ(results.runs_done(), 4);
  ASSERT_EQ(results.tasks.size(), 2u);
  EXPECT_EQ(results.tasks[0].task.name, "repeat");
  const MethodResults& alibi = results.tasks[0].methods.at(0);
  ASSERT_EQ(alibi.task.points.size(), 5u);
  EXPECT_EQ(alibi.task.points.back().length, 256);
  EXPECT_EQ(alibi.task.points.back().right, 40) << "the control was not learned";
  EXPECT_EQ(results.tasks[1].methods.at(0).task.points.size(), 3u + 4 + 5 + 6 + 7);
  EXPECT_EQ(results.tasks[1].methods.at(1).name, "learned");
  EXPECT_EQ(results.tasks[1].methods.at(1).task.points.size(), 3u) << "its table ends at the training length";
  EXPECT_EQ(results.parameters, alibi.parameters);

  const CompareResults read = report::results_from_json(core::read_file(options.out / "results.json"));
  EXPECT_EQ(report::to_json(read), core::read_file(options.out / "results.json"));
  EXPECT_EQ(report::merge({{"a", results, ""}, {"b", read, ""}}).runs_done(), 4);
  EXPECT_EQ(report::merge({{"a", results, ""}, {"b", read, "again"}}).tasks.at(0).methods.size(), 4u);
  const std::string text = report::comparison_text(results), page = core::read_file(options.out / "report.html");
  EXPECT_NE(text.find("alibi answers up to distance 1 and in texts of up to 256 tokens"), std::string::npos) << text;
  EXPECT_NE(page.find("alibi answers up to distance 1 and in texts of up to 256 tokens"), std::string::npos);
  EXPECT_NE(page.find("task-recall"), std::string::npos);
}

TEST(Tasks, StandBesideATextAndHideItsPasskeys) {
  const TemporaryFolder folder;
  CompareOptions options = test::shorter_run(folder);
  options.train.train_length = 16;
  options.lengths = {16, 32};
  options.tasks = {"passkey"};
  options.task_questions = 35;
  const CompareResults both = compare(options);
  EXPECT_EQ(both.methods.size(), 2u);
  ASSERT_EQ(both.tasks.size(), 1u);
  EXPECT_EQ(both.tasks[0].methods.size(), 2u);
  options.tasks.clear();
  EXPECT_EQ(compare(options).methods[1].evaluations[1].nll, both.methods[1].evaluations[1].nll);
}

TEST(Tasks, HaveTheirShareOfEachUpdateBesideTheBlocksOfTheText) {
  constexpr int64_t length = 16, sequences = 8, steps = 5;
  auto ids = std::make_shared<std::vector<int32_t>>();
  for (int32_t i = 0; i < 20 * length + 3; ++i)
    ids->push_back(1000 + i);  // no token of a task; the last block is short
  TrainingData text;
  text.train = {*ids, ids};
  TrainOptions train;
  train.train_length = length;
  train.batch_tokens = sequences * length;
  train.train_tokens = steps * train.batch_tokens;
  train.seed = 3;
  const TaskData mixed = mixed_data(text, {"recall", "repeat"}, {length, ""}, 0.3, train);
  ASSERT_EQ(std::ssize(mixed.data.train.tokens), steps * sequences * length);
  training::BlockOrder order(mixed.data.train.tokens, length, 0, train.seed, mixed.scored);
  training::BlockOrder of_text(*ids, length, 0, train.seed);
  int64_t blocks = 0, tasks = 0;
  for (int64_t i = 0; i < steps * sequences; ++i) {
    const int64_t at = order.block_at(i) * length;
    const std::span<const int32_t> row = mixed.data.train.tokens.subspan(static_cast<size_t>(at), length);
    if (i % sequences < 2) {  // 0.3 of 8 sequences
      const std::string task = tasks++ % 2 == 0 ? "recall" : "repeat";
      for (size_t t = 0; t < length; ++t) {
        if (mixed.scored[static_cast<size_t>(at) + t] == 0) continue;
        EXPECT_EQ(solve(task, bytes_of({row.begin(), row.end()}, 0, t)).answer, static_cast<char>(row[t]));
      }
      EXPECT_EQ(row.back(), 256);
      EXPECT_LT(order.targets_of(order.block_at(i)), length);
      continue;
    }
    int64_t block = of_text.block_at(blocks++);
    if (of_text.length_of(block) < length) block = of_text.block_at(blocks++);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), ids->begin() + block * length)) << i;
    EXPECT_EQ(order.targets_of(order.block_at(i)), length - 1);
  }
  EXPECT_EQ(tasks, 2 * steps);
}

TEST(Tasks, AModelOfTextAndTasksHasAPerplexityAndAnswers) {
  const TemporaryFolder folder;
  CompareOptions options = test::shorter_run(folder);
  options.tokenizer = {};
  options.train.train_length = 16;
  options.lengths = {16, 32};
  options.tasks = {"recall", "repeat"};
  options.task_share = 0.25;
  options.task_questions = 35;
  options.seeds = 2;
  const CompareResults expected = compare(options);
  ASSERT_EQ(expected.methods.size(), 2u);
  EXPECT_EQ(expected.methods[0].evaluations.size(), 2u);
  ASSERT_EQ(expected.tasks.size(), 2u);
  EXPECT_TRUE(expected.tasks[1].beside_text);
  EXPECT_EQ(expected.tasks[0].methods.at(1).task.points.at(0).questions, 70);
  EXPECT_EQ(expected.runs_done(), 4);

  options.out = folder / "out";
  int calls = 0;
  CompareResults found;
  do {
    int left = 5 * ++calls;  // stops later and later
    options.should_stop = [&] { return --left == 0; };
    found = compare(options);
    ASSERT_LT(calls, 200);
  } while (found.runs_done() < 4);
  EXPECT_GT(calls, 1);
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(found.methods[m].evaluations[1].nll, expected.methods[m].evaluations[1].nll);
    for (size_t t = 0; t < 2; ++t) {
      const auto &a = expected.tasks[t].methods[m].task.points, &b = found.tasks[t].methods[m].task.points;
      EXPECT_TRUE(std::ranges::equal(a, b, {}, &AnswerPoint::right, &AnswerPoint::right)) << t;
    }
  }
  const std::string file = core::read_file(options.out / "results.json");
  const CompareResults read = report::results_from_json(file);
  EXPECT_EQ(report::to_json(read), file);
  EXPECT_EQ(report::merge({{"a", found, ""}, {"b", read, ""}}).runs_done(), 4);
  EXPECT_NE(core::read_file(options.out / "map.svg").find("The map of methods"), std::string::npos);
  EXPECT_NE(core::read_file(options.out / "report.html").find("id=\"map-title\""), std::string::npos);
  EXPECT_NE(report::comparison_text(found).find("Recall beside text: "), std::string::npos);
  options.should_stop = {};
  options.task_share = 0.5;
  test::expect_error<Error>([&] { compare(options); }, "task_share is 0.5, was 0.25");
}

TEST(Tasks, AreResumedToTheSameAnswers) {
  const TemporaryFolder folder;
  CompareOptions options = short_tasks();
  options.train.train_tokens = options.task_tokens = 2048;
  options.seeds = 2;
  const CompareResults expected = compare(options);
  options.out = folder / "out";
  CompareResults found;
  int calls = 0;
  do {
    int left = 3 * ++calls;  // stops later and later
    options.should_stop = [&] { return --left == 0; };
    found = compare(options);
    ASSERT_LT(calls, 200);
  } while (found.runs_done() < 8);
  EXPECT_GT(calls, 3);
  for (size_t t = 0; t < 2; ++t) {
    for (size_t m = 0; m < 2; ++m) {
      const auto &a = expected.tasks[t].methods[m].task.points, &b = found.tasks[t].methods[m].task.points;
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].right, b[i].right);
        EXPECT_EQ(a[i].questions, 80);
        EXPECT_LE(a[i].interval.low, a[i].accuracy());
        EXPECT_GE(a[i].interval.high, a[i].accuracy());
      }
    }
  }
  options.should_stop = {};
  options.tasks.emplace_back("parity");  // tasks may be added
  EXPECT_EQ(compare(options).runs_done(), 12);
  options.task_questions = 41;
  test::expect_error<Error>([&] { compare(options); }, "task_questions is 41, was 40");
}

TEST(Tasks, EachHasTheRateThatSuitsIt) {
  const TemporaryFolder folder;
  CompareOptions options = short_tasks();
  options.positions = {Position::alibi};
  options.out = folder / "out";
  options.tune_rates = {1e-6, 0.01};
  for (const TaskResults& task : compare(options).tasks) EXPECT_EQ(task.methods.at(0).learning_rate, 0.01);
  EXPECT_NE(test::setting(compare(options), "tuning").find("alibi on repeat 0.01 (the lowest or highest"),
            std::string::npos);
  EXPECT_TRUE(core::path_exists(options.out / "note-tune-recall-alibi.json"));
}

TEST(Tasks, WrongOptionsAreNamed) {
  CompareOptions options = short_tasks();
  options.tasks = {"recalled"};
  test::expect_error<UsageError>([&] { compare(options); },
                                 "there is no task 'recalled', expected one of recall, updates");
  options.tasks = {"copy", "copy"};
  test::expect_error<UsageError>([&] { compare(options); }, "the task copy is given twice");
  options = short_tasks();
  options.train.train_length = 8;
  test::expect_error<UsageError>([&] { compare(options); }, "a training length is 8, expected at least 16 with tasks");
  options = short_tasks();
  options.task_share = 0.99;
  test::expect_error<UsageError>([&] { compare(options); }, "task_tokens and task_share are given");
  options.task_tokens = 0;
  test::expect_error<UsageError>([&] { compare(options); },
                                 "below 1 that leaves at least one of the 16 sequences of an update to the text");
  options.tasks.clear();
  test::expect_error<UsageError>([&] { compare(options); }, "task_share is 0.99, but there are no tasks");
  const TemporaryFolder folder;
  options = test::shorter_run(folder);
  options.train.train_length = 16;
  options.lengths = {16};
  options.tasks = {"recall"};
  options.task_share = 0.25;
  test::expect_error<UsageError>([&] { compare(options); },
                                 "the tokenizer is bpe, expected byte with a share of tasks");
  options = short_tasks();
  options.task_questions = 34;
  test::expect_error<UsageError>([&] { compare(options); }, "task_questions is 34, expected at least 35");
}

}  // namespace
}  // namespace alibi::comparison
