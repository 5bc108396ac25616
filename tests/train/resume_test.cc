// Runs that are stopped and resumed give the bits of runs that are not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "alibi/train.h"
#include "core/files.h"
#include "formats/json.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/small_run.h"

namespace alibi {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::short_run;
using test::small_model;
using test::stream;
using test::TemporaryFolder;
using test::weights;

/// With dropout, parts of batches, more than one epoch and evaluations: everything that a resume must get right.
TrainOptions varied_run(Optimizer optimizer) {
  TrainOptions options = short_run();
  options.tokens = 12 * 256;
  options.optimizer = optimizer;
  if (optimizer == Optimizer::nag) options.learning_rate = 0.05;
  options.seed = 3;
  options.eval_steps = 3;
  options.eval_tokens = 150;
  return options;
}

struct Outcome {
  std::vector<float> loss, weights;
  std::vector<std::pair<int64_t, double>> evaluations;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(const TrainResult& result, const LanguageModel& model) {
  Outcome all{result.loss, weights(model), {}};
  for (const TrainEvaluation& evaluation : result.evaluations)
    all.evaluations.emplace_back(evaluation.step, evaluation.loss);
  return all;
}

class Resume : public ::testing::Test {
 protected:
  /// Until `stop_after` updates of the whole run are done, or to the end.
  TrainResult go(LanguageModel& model, const TrainOptions& options, int64_t stop_after = INT64_MAX,
                 bool resume = true) {
    int64_t done = 0;
    TrainRun run;
    run.folder = folder / "model";
    run.resume = resume;
    run.checkpoint_steps = checkpoint_steps;
    run.keep = keep;
    run.valid = valid;
    run.on_step = [&](const TrainStatus& status) { done = status.step; };
    run.should_stop = [&] { return done >= stop_after; };
    return train(model, tokens, options, run);
  }

  std::set<std::string> checkpoints() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "model" / "checkpoints")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::vector<int64_t> metric_steps() const {
    std::ifstream file(folder / "model" / "metrics.jsonl");
    std::vector<int64_t> steps;
    for (std::string line; std::getline(file, line);) steps.push_back(Json::parse(line)["step"].get<int64_t>());
    return steps;
  }

  TemporaryFolder folder;
  std::vector<int32_t> tokens = stream(1003), valid = stream(400);
  int64_t checkpoint_steps = 0, keep = 2;
};

TEST_F(Resume, SameBitsAsARunThatWasNotStoppedAtAnyThreadCount) {
  const test::RuntimeGuard guard;
  for (const auto& [optimizer, precision] :
       {std::pair(Optimizer::adamw, "f32"), std::pair(Optimizer::nag, "f32"), std::pair(Optimizer::adamw, "auto")}) {
    TrainOptions options = varied_run(optimizer);
    options.precision = precision_from(precision);
    set_threads(1);
    LanguageModel undisturbed = small_model(Position::alibi, 0.1f);
    TrainRun plain;
    plain.valid = valid;
    const Outcome expected = outcome(train(undisturbed, tokens, options, plain), undisturbed);
    ASSERT_EQ(expected.loss.size(), 12u);
    ASSERT_EQ(expected.evaluations.size(), 4u);

    int64_t done = 0;
    for (const int64_t stop : {1, 2, 5, 6, 11}) {
      set_threads(static_cast<int>(1 + stop % 3));
      LanguageModel model = small_model(Position::alibi, 0.1f);
      const TrainResult part = go(model, options, stop);
      EXPECT_EQ(part.end, TrainEnd::asked);
      EXPECT_EQ(part.resumed_step, done);
      EXPECT_EQ(part.steps, stop);
      done = stop;
    }
    LanguageModel model = small_model(Position::alibi, 0.1f);
    const TrainResult last = go(model, options);
    EXPECT_EQ(last.end, TrainEnd::all_tokens);
    EXPECT_EQ(last.tokens, 12 * 256 - 3 * 5);  // the stream's last block is 5 tokens short, in each of 3 epochs
    EXPECT_TRUE(outcome(last, model) == expected) << name_of(optimizer) << ' ' << precision;
    EXPECT_EQ(metric_steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    fs::remove_all(folder / "model");
  }
}

TEST_F(Resume, WhatWasDoneAfterTheCheckpointIsDoneAgainAndNotedOnce) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  go(model, options, 4);
  fs::copy(folder / "model", folder / "before", fs::copy_options::recursive);
  LanguageModel further = small_model();
  go(further, options, 8);
  // As if the process had been killed after update 8, and its last line were torn: the checkpoints are those of before.
  fs::remove_all(folder / "model" / "checkpoints");
  fs::copy(folder / "before" / "checkpoints", folder / "model" / "checkpoints", fs::copy_options::recursive);
  std::ofstream(folder / "model" / "metrics.jsonl", std::ios::app) << "{\"step\": 9, \"lo";
  LanguageModel again = small_model();
  EXPECT_EQ(go(again, options, 8).resumed_step, 4);
  EXPECT_EQ(weights(again), weights(further));
  EXPECT_EQ(metric_steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(Resume, ACompleteRunHasNothingLeftToDo) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model(), again = small_model();
  const TrainResult first = go(model, options);
  const TrainResult second = go(again, options);
  EXPECT_EQ(second.resumed_step, 12);
  EXPECT_TRUE(outcome(second, again) == outcome(first, model));
  ASSERT_TRUE(newest_checkpoint(folder / "model").has_value());
  EXPECT_TRUE(newest_checkpoint(folder / "model")->finished);
  EXPECT_EQ(newest_checkpoint(folder / "model")->step, 12);
}

TEST_F(Resume, TimeGoesOnWhereItStopped) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  constexpr double slept = 0.1;
  for (const int64_t stop : {3, 6}) {
    TrainRun run;
    run.folder = folder / "model";
    run.resume = true;
    run.valid = valid;
    run.on_step = [&](const TrainStatus& status) {
      if (status.step == 1) std::this_thread::sleep_for(std::chrono::duration<double>(slept));
    };
    run.should_stop = [done = 0]() mutable { return ++done == 3; };
    const TrainResult result = train(model, tokens, options, run);
    ASSERT_EQ(result.steps, stop);
    EXPECT_GE(result.seconds, slept);
  }
  std::ifstream file(folder / "model" / "metrics.jsonl");
  double before = 0;
  for (std::string line; std::getline(file, line);) {
    const auto seconds = Json::parse(line)["seconds"].get<double>();
    EXPECT_GT(seconds, before);
    before = seconds;
  }
}

TEST_F(Resume, ACheckpointIsAModelFolder) {
  LanguageModel model = small_model();
  go(model, varied_run(Optimizer::adamw), 5);
  EXPECT_EQ(weights(LanguageModel::load(folder / "model" / "checkpoints" / "step-000005")), weights(model));
}

TEST_F(Resume, KeepsTheNewestAndTheBest) {
  TrainOptions options = varied_run(Optimizer::adamw);
  checkpoint_steps = 1;
  LanguageModel model = small_model();
  const TrainResult result = go(model, options);
  const std::string best = fmt::format("step-{:06}", result.best->step);
  EXPECT_EQ(checkpoints(), (std::set<std::string>{best, "step-000011", "step-000012"}));
}

TEST_F(Resume, OtherSettingsOrTextAreRefusedByName) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  go(model, options, 2);
  TrainOptions changed = options;
  changed.learning_rate = 1e-3;
  changed.clip = 0.5;
  expect_error([&] { go(model, changed); }, "learning_rate is 0.001, was 0.005");
  expect_error([&] { go(model, changed); }, "clip is 0.5, was 1");
  LanguageModel wider = small_model(Position::rotary);
  expect_error([&] { go(wider, options); }, "position is \"rotary\", was \"alibi\"");
  tokens.back() ^= 1;
  expect_error([&] { go(model, options); }, "text_fingerprint");
  tokens.back() ^= 1;
  valid[7] ^= 1;
  expect_error([&] { go(model, options); }, "held_out_fingerprint");
  valid[7] ^= 1;
  EXPECT_EQ(go(model, options, 3).resumed_step, 2);
}

TEST_F(Resume, ANewRunDoesNotOverwriteOneThatCanBeResumed) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  go(model, options, 2, false);
  expect_error([&] { go(model, options, INT64_MAX, false); }, "stopped after 2 updates");
  go(model, options);
  LanguageModel other = small_model();
  TrainOptions changed = options;
  changed.seed = 9;
  EXPECT_EQ(go(other, changed, 1, false).resumed_step, 0);
  EXPECT_EQ(checkpoints(), std::set<std::string>{"step-000001"});
  EXPECT_EQ(metric_steps(), std::vector<int64_t>{1});
}

TEST_F(Resume, HalfWrittenAndDamagedCheckpointsAreNotUsed) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel undisturbed = small_model();
  TrainRun plain;
  plain.valid = valid;
  train(undisturbed, tokens, options, plain);

  LanguageModel model = small_model();
  checkpoint_steps = 1;
  go(model, options, 7);
  const fs::path all = folder / "model" / "checkpoints";
  fs::resize_file(all / "step-000007" / "training.safetensors", 100);
  fs::copy(all / "step-000006", all / "step-000009.123.part", fs::copy_options::recursive);
  fs::create_directory(all / "step-000010");  // not ours: without any file
  std::ofstream(folder / "model" / "metrics.jsonl.77.0.part") << "half";
  EXPECT_EQ(newest_checkpoint(folder / "model")->step, 6);
  LanguageModel resumed = small_model();
  checkpoint_steps = 0;
  keep = 1;
  const TrainResult result = go(resumed, options, 8);
  EXPECT_EQ(result.resumed_step, 6);
  const std::string best = fmt::format("step-{:06}", result.best->step);
  EXPECT_EQ(checkpoints(), (std::set<std::string>{best, "step-000008"}));
  EXPECT_FALSE(fs::exists(folder / "model" / "metrics.jsonl.77.0.part"));
  go(resumed, options);
  EXPECT_EQ(weights(resumed), weights(undisturbed));
}

TEST_F(Resume, OneProcessAtATime) {
  LanguageModel model = small_model();
  go(model, varied_run(Optimizer::adamw), 1);
  const FolderLock lock(folder / "model" / "checkpoints");
  expect_error([&] { go(model, varied_run(Optimizer::adamw)); }, "in use by another process");
}

TEST_F(Resume, StopsEarlyWithTheBestWeightsAlsoAfterAResume) {
  // A held-out text of another kind: the better the model knows its own text, the worse it does here.
  for (size_t i = 0; i < valid.size(); ++i) valid[i] = static_cast<int32_t>("zyx wvu tsr qpo "[i % 16]);
  TrainOptions options = varied_run(Optimizer::adamw);
  options.tokens = 60 * 256;
  options.eval_steps = 2;
  options.patience = 3;
  LanguageModel model = small_model();
  const TrainResult result = go(model, options);
  ASSERT_EQ(result.end, TrainEnd::no_gain);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_EQ(result.weights_step, result.best->step);
  EXPECT_EQ(result.steps, result.best->step + 3 * 2);
  for (const TrainEvaluation& evaluation : result.evaluations) EXPECT_GE(evaluation.loss, result.best->loss);

  fs::remove_all(folder / "model");
  LanguageModel stopped = small_model(), resumed = small_model();
  go(stopped, options, result.best->step + 1);
  const TrainResult second = go(resumed, options);
  EXPECT_TRUE(outcome(second, resumed) == outcome(result, model));
  EXPECT_EQ(weights(resumed), weights(LanguageModel::load(folder / "model" / "checkpoints" /
                                                          fmt::format("step-{:06}", result.best->step))));
}

TEST_F(Resume, WritingThatFailsLosesNothing) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  go(model, options, 4);
  // A file where the folder of the next checkpoint will be made: it cannot be written.
  const fs::path blocked = folder / "model" / "checkpoints" / fmt::format("step-000005.{}.part", ::getpid());
  LanguageModel second = small_model();
  TrainRun run;
  run.folder = folder / "model";
  run.resume = true;
  run.checkpoint_steps = 1;
  run.valid = valid;
  run.on_step = [&](const TrainStatus&) { std::ofstream(blocked) << "in the way"; };
  expect_error([&] { train(second, tokens, options, run); }, "step-000005");
  fs::remove(blocked);
  expect_error([&] { train(second, tokens, options, run); }, "The checkpoint of update 4 is whole");
  EXPECT_EQ(newest_checkpoint(folder / "model")->step, 4);
  LanguageModel third = small_model();
  EXPECT_EQ(go(third, options).resumed_step, 4);
}

TEST_F(Resume, BadOptionsAreUsageErrors) {
  LanguageModel model = small_model();
  const auto refused = [&](const TrainOptions& options, const TrainRun& run, const char* part) {
    expect_error<UsageError>([&] { train(model, tokens, options, run); }, part);
  };
  TrainOptions options = short_run();
  options.patience = 1;
  refused(options, {}, "eval_steps");
  options.eval_steps = 1;
  refused(options, {}, "no held-out text");
  TrainRun run;
  run.valid = valid;
  refused(options, run, "folder");
  run.folder = folder / "model";
  run.keep = 0;
  refused(options, run, "keep");
  run = {};
  run.resume = true;
  refused(short_run(), run, "folder");
}

}  // namespace
}  // namespace alibi
