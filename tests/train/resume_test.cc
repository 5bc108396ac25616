// Runs that are stopped and resumed give the bits of runs that are not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "alibi/train.h"
#include "core/checksum.h"
#include "core/files.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
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
  options.train_tokens = 12 * 256;
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
    run.overwrite = overwrite;
    run.checkpoint_steps = checkpoint_steps;
    run.keep = keep;
    run.valid = valid;
    run.on_step = [&](const TrainStatus& status) { done = status.step; };
    run.should_stop = [&] { return done >= stop_after; };
    warnings.clear();
    run.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); };
    return train(model, tokens, options, run);
  }

  fs::path checkpoint(int64_t step) const { return folder / "model" / "checkpoints" / fmt::format("step-{:06}", step); }

  /// Stops after 3 updates, with the checkpoints of 2 and 3.
  void stop_after_three(const TrainOptions& options) {
    checkpoint_steps = 1;
    LanguageModel model = small_model();
    go(model, options, 3);
    checkpoint_steps = 0;
    ASSERT_EQ(newest_checkpoint(folder / "model")->step, 3);
  }

  /// With a held-out text of another kind: the better the model knows its own text, the worse it does on that.
  TrainOptions run_that_stops_early() {
    for (size_t i = 0; i < valid.size(); ++i) valid[i] = static_cast<int32_t>("zyx wvu tsr qpo "[i % 16]);
    TrainOptions options = varied_run(Optimizer::adamw);
    options.train_tokens = 60 * 256;
    options.eval_steps = 2;
    options.patience = 3;
    return options;
  }

  /// Changes training.json of a checkpoint as its writer might have, with the right checksum.
  void edit_state(int64_t step, const std::function<void(formats::Json&)>& edit) {
    const fs::path path = checkpoint(step) / "training.json";
    formats::Json state = formats::Json::parse(core::read_file(path));
    edit(state);
    state.erase("xxh64");
    state["xxh64"] = core::xxh64(state.dump());
    folder.write(path, state.dump());
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
    for (std::string line; std::getline(file, line);)
      steps.push_back(formats::Json::parse(line)["step"].get<int64_t>());
    return steps;
  }

  TemporaryFolder folder;
  std::vector<int32_t> tokens = stream(1003), valid = stream(400);
  int64_t checkpoint_steps = 0, keep = 2;
  bool overwrite = false;
  std::vector<std::string> warnings;
};

TEST_F(Resume, SameBitsAsARunThatWasNotStoppedAtAnyThreadCount) {
  const test::RuntimeGuard guard;
  for (const auto& [optimizer, precision, slopes] :
       {std::tuple(Optimizer::adamw, "f32", SlopeTraining::fixed),
        std::tuple(Optimizer::nag, "f32", SlopeTraining::learned),
        std::tuple(Optimizer::adamw, "auto", SlopeTraining::learned_random)}) {
    TrainOptions options = varied_run(optimizer);
    options.precision = precision_from(precision);
    set_threads(1);
    LanguageModel undisturbed = small_model(Position::alibi, 0.1f, slopes);
    TrainRun plain;
    plain.valid = valid;
    const Outcome expected = outcome(train(undisturbed, tokens, options, plain), undisturbed);
    ASSERT_EQ(expected.loss.size(), 12u);
    ASSERT_EQ(expected.evaluations.size(), 4u);

    int64_t done = 0;
    for (const int64_t stop : {1, 2, 5, 6, 11}) {
      set_threads(static_cast<int>(1 + stop % 3));
      LanguageModel model = small_model(Position::alibi, 0.1f, slopes);
      const TrainResult part = go(model, options, stop);
      EXPECT_EQ(part.end, TrainEnd::asked);
      EXPECT_EQ(part.resumed_step, done);
      EXPECT_EQ(part.steps, stop);
      done = stop;
    }
    LanguageModel model = small_model(Position::alibi, 0.1f, slopes);
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
    const auto seconds = formats::Json::parse(line)["seconds"].get<double>();
    EXPECT_GT(seconds, before);
    before = seconds;
  }
}

TEST_F(Resume, CheckpointsByTime) {
  const auto written_within = [&](double minutes) {
    LanguageModel model = small_model();
    TrainRun run;
    run.folder = folder / "model";
    run.valid = valid;
    run.checkpoint_minutes = minutes;
    run.keep = 10;
    run.on_step = [](const TrainStatus& status) {
      if (status.step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    };
    run.should_stop = [done = 0]() mutable { return ++done == 3; };
    TrainOptions options = short_run();
    train(model, tokens, options, run);
    const std::set<std::string> names = checkpoints();
    fs::remove_all(folder / "model");
    return names;
  };
  EXPECT_EQ(written_within(0), std::set<std::string>{"step-000003"}) << "0: by updates alone";
  EXPECT_EQ(written_within(0.1), std::set<std::string>{"step-000003"}) << "six seconds";
  EXPECT_TRUE(written_within(0.1 / 60).contains("step-000002")) << "a tenth of a second";
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
  expect_error([&] { go(model, options); }, "held_out_text");
  valid[7] ^= 1;
  EXPECT_EQ(go(model, options, 3).resumed_step, 2);
}

TEST_F(Resume, ANewRunDoesNotOverwriteOneThatCanBeResumed) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  LanguageModel model = small_model();
  go(model, options, 2, false);
  expect_error([&] { go(model, options, INT64_MAX, false); }, "interrupted after 2 updates");
  go(model, options);
  LanguageModel other = small_model();
  TrainOptions changed = options;
  changed.seed = 9;
  expect_error<UsageError>([&] { go(other, changed, 1, false); }, "contains a model");
  expect_error<UsageError>([&] { check_folder_is_free(folder / "model"); }, "--overwrite");
  overwrite = true;
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

TEST_F(Resume, AFlippedBitInAnyFileOfACheckpointLetsTheOlderOneBeTaken) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  stop_after_three(options);
  fs::copy(folder / "model", folder / "before", fs::copy_options::recursive);
  LanguageModel undisturbed = small_model();
  EXPECT_EQ(go(undisturbed, options, 5).resumed_step, 3);
  EXPECT_TRUE(warnings.empty());
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "before/checkpoints/step-000003")) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    names.insert(name);
    fs::remove_all(folder / "model");
    fs::copy(folder / "before", folder / "model", fs::copy_options::recursive);
    std::string content = core::read_file(entry.path());
    content[content.size() / 2] ^= 1;
    folder.write(checkpoint(3) / name, content);
    ASSERT_TRUE(newest_checkpoint(folder / "model").has_value());
    EXPECT_EQ(newest_checkpoint(folder / "model")->step, 2);
    LanguageModel resumed = small_model();
    EXPECT_EQ(go(resumed, options, 5).resumed_step, 2);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find((checkpoint(3) / name).string()), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find("training resumes from update 2"), std::string::npos) << warnings[0];
    EXPECT_EQ(weights(resumed), weights(undisturbed));
    EXPECT_TRUE(newest_checkpoint(folder / "model")->damaged.empty());
  }
  EXPECT_EQ(names, (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                          "training.json", "training.safetensors"}));
}

TEST_F(Resume, NoFlippedBitOfTheStateGoesUnnoticed) {
  stop_after_three(varied_run(Optimizer::adamw));
  fs::remove_all(checkpoint(2));
  const fs::path path = checkpoint(3) / "training.json";
  const std::string good = core::read_file(path);
  const formats::Json before = formats::Json::parse(good);
  int harmless = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string content = good;
    content[at] = static_cast<char>(content[at] ^ (1 << at % 8));
    fs::remove(path);  // a file that is written over is brought to the disk, which takes a hundred times as long
    folder.write(path, content);
    if (test::message_of([&] { newest_checkpoint(folder / "model"); }) != "no error") continue;
    ++harmless;  // a space that became another one
    EXPECT_EQ(formats::Json::parse(content), before) << "byte " << at;
  }
  EXPECT_LT(harmless, 300);
  EXPECT_GT(good.size(), 1000u);
}

TEST_F(Resume, WithoutAWholeCheckpointNothingIsRemoved) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  stop_after_three(options);
  for (const int64_t step : {2, 3}) {
    const fs::path path = checkpoint(step) / "training.safetensors";
    std::string content = core::read_file(path);
    content.back() ^= 64;
    folder.write(path, content);
  }
  for (const bool resume : {true, false}) {
    LanguageModel model = small_model();
    const std::string message = test::message_of([&] { go(model, options, 5, resume); });
    for (const char* part :
         {"contains no complete checkpoint", "step-000003/training.safetensors: the checksum is",
          "step-000002/training.safetensors: the checksum is", "To start again, remove that folder"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"step-000002", "step-000003"}));
}

TEST_F(Resume, TheFormatIsLookedAt) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  stop_after_three(options);
  edit_state(3, [](formats::Json& state) { state["format"] = 3; });
  LanguageModel model = small_model();
  // It is not damaged, so it is not left out for an older one, and stays.
  expect_error([&] { go(model, options, 5); }, "training.json: format is 3, expected 2");
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"step-000002", "step-000003"}));
}

TEST_F(Resume, WrongFieldsOfTheStateAreNamed) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  stop_after_three(options);
  fs::remove_all(checkpoint(2));
  const std::string good = core::read_file(checkpoint(3) / "training.json");
  struct Wrong {
    const char* key;
    const char* value;
    const char* says;
  };
  const std::vector<Wrong> all = {
      {"/format", "\"2\"", "format is \"2\", expected an integer"},
      {"/format", "0", "format is 0, expected 2 to"},
      {"/step", "\"x\"", "step is \"x\", expected an integer"},
      {"/step", "4", "step is 4, expected the step in the folder's name"},
      {"/tokens", "-1", "tokens is -1, expected 1 to"},
      {"/seconds", "-1", "seconds is -1, expected 0 to"},
      {"/seconds", "null", "seconds is missing"},
      {"/finished", "0", "finished is 0, expected true or false"},
      {"/evaluations", "3", "evaluations is 3, expected a list of lists of numbers"},
      {"/evaluations", "[3]", "evaluations is an array of 1, expected a list of lists of numbers"},
      {"/evaluations", "[[3]]", "evaluations contains [3], expected an update and its loss"},
      {"/evaluations", "[[\"a\", 1]]", "evaluations is an array of 1, expected a list of lists of numbers"},
      {"/evaluations", "[[1.5, 1]]", "evaluations contains [1.5, 1], expected an update and its loss"},
      {"/evaluations", "[[4, 1]]", "evaluations contains [4, 1], expected an update and its loss"},
      {"/run", "[]", "run is an array of 0, expected an object"},
      {"/run", "null", "run is missing"},
      {"/files", "{}", "files.config.json is missing"},
      {"/files", "7", "files is 7, expected an object"},
      {"/files/config.json", "7", "files.config.json is 7, expected an object"},
      {"/files/config.json/bytes", "7", "config.json: has"},
      {"/files/config.json/xxh64", "\"\"", "files.config.json.xxh64 is \"\", expected 16 hexadecimal digits"},
      {"/files/more", R"({"bytes": 1, "xxh64": "0123456789abcdef"})", "more: No such file"},
      {"/files/..~1x", R"({"bytes": 1, "xxh64": "0123456789abcdef"})",
       "files.../x is not a plain file name, expected one without a folder"},
  };
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(fmt::format("{} = {}", wrong.key, wrong.value));
    folder.write(checkpoint(3) / "training.json", good);
    edit_state(3, [&](formats::Json& state) {
      state[formats::Json::json_pointer(wrong.key)] = formats::Json::parse(wrong.value);
    });
    LanguageModel model = small_model();
    const std::string message = test::message_of([&] { go(model, options, 5); });
    EXPECT_NE(message.find(checkpoint(3).string()), std::string::npos) << message;
    EXPECT_NE(message.find(wrong.says), std::string::npos) << message;
    EXPECT_EQ(message.find("exception"), std::string::npos) << message;
  }
}

TEST_F(Resume, NumbersOfTheOptimizerThatAreNoneAreNamed) {
  const TrainOptions options = varied_run(Optimizer::adamw);
  stop_after_three(options);
  const fs::path path = checkpoint(3) / "training.safetensors";
  const std::string name = "v.blocks.1.ffn.down_proj.weight";
  std::string content = core::read_file(path);
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(content.data() + formats::Safetensors(path).info(name).begin + 4 * 130, &infinity, sizeof infinity);
  folder.write(path, content);
  edit_state(3, [&](formats::Json& state) { state["files"]["training.safetensors"]["xxh64"] = core::xxh64(content); });
  LanguageModel model = small_model();
  expect_error([&] { go(model, options, 5); }, path.string() + ": \"" + name + "\" [1, 2] is inf");
}

TEST_F(Resume, ADamagedCheckpointOfTheBestWeightsIsNotTaken) {
  const TrainOptions options = run_that_stops_early();
  LanguageModel model = small_model();
  const int64_t best = go(model, options).best->step;
  const fs::path path = checkpoint(best) / "model.safetensors";
  std::string content = core::read_file(path);
  content.back() ^= 1;
  folder.write(path, content);
  LanguageModel again = small_model();
  expect_error([&] { go(again, options); }, path.string() + ": the checksum is");
}

TEST_F(Resume, OneProcessAtATime) {
  LanguageModel model = small_model();
  go(model, varied_run(Optimizer::adamw), 1);
  const core::FolderLock lock(folder / "model" / "checkpoints");
  expect_error([&] { go(model, varied_run(Optimizer::adamw)); }, "in use by another process");
}

TEST_F(Resume, StopsEarlyWithTheBestWeightsAlsoAfterAResume) {
  const TrainOptions options = run_that_stops_early();
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
  expect_error([&] { train(second, tokens, options, run); }, "The checkpoint of update 4 is intact");
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
}  // namespace alibi::training
