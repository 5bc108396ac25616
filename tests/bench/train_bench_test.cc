#include "bench/train_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "alibi/error.h"
#include "bench/train_report.h"
#include "bench/train_step.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::bench {
namespace {

LanguageModelConfig small_config(Position position = Position::alibi) {
  return with_position(test::small_config(), position, 64);
}

const TrainBenchSettings quick_training = {.batch_tokens = 256, .micro_batch_tokens = 192, .seconds = 0};

/// Measured once for all tests.
MatmulCeilings& ceilings() {
  static MatmulCeilings measured(DType::float32);
  return measured;
}

TEST(TrainStep, TokensOccurAlikeOften) {
  const std::vector<int32_t> stream = golden_ratio_tokens(9700, 97);
  std::vector<int> times(97);
  for (const int32_t token : stream) ++times.at(static_cast<size_t>(token));
  for (const int count : times) EXPECT_NEAR(count, 100, 3);
  EXPECT_EQ(std::vector<int32_t>(stream.begin(), stream.begin() + 4), (std::vector<int32_t>{0, 59, 22, 82}));
}

TEST(TrainStep, TakesWholeBlocks) {
  EXPECT_EQ(step_options(64, 300, 192).batch_tokens, 256);
  EXPECT_EQ(step_options(64, 1, 192).batch_tokens, 64);
  test::expect_error<UsageError>([] { step_options(64, INT64_MAX, 192); }, "batch_tokens is 9223372036854775807");
}

TEST(TrainStep, IsAnUpdateOfTraining) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    TrainOptions options = step_options(64, 256, 192);
    options.precision = precision;
    options.learning_rate = 500;  // it rises over 50,000 updates
    TrainStep step(small_config(), options);
    std::vector<float> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(static_cast<float>(step.run()));

    LanguageModel model(small_config(), options.seed);
    int64_t steps = 0;
    TrainRun run;
    run.should_stop = [&] { return ++steps == 4; };
    EXPECT_EQ(losses, train(model, golden_ratio_tokens(256, 257), options, run).loss);
    EXPECT_NE(losses.front(), losses.back());
  }
}

TEST(TrainStep, AdaptiveModelsAreRefused) {
  LanguageModelConfig config = small_config();
  config.adaptive = AdaptiveConfig{.cutoffs = {100}, .factor = 2};
  EXPECT_THROW(TrainStep(config, step_options(64, 256, 256)), UsageError);
}

TEST(TrainBench, MeasuresStepsInTurns) {
  const std::vector<Position> positions = {Position::alibi, Position::t5};
  TrainBench bench(quick_training, ceilings());
  bench.measure("own", {small_config()}, 64);  // what threads keep of the first products would count as the model's
  const std::vector<TrainPoint> points =
      bench.measure("own", {small_config(positions[0]), small_config(positions[1])}, 64);
  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[0].of_first, 1);
  EXPECT_EQ(points[1].of_first, points[1].seconds / points[0].seconds);
  EXPECT_EQ(points[0].runs, points[1].runs);
  for (size_t i = 0; i < points.size(); ++i) {
    const Position position = positions[i];
    const TrainPoint& point = points[i];
    ASSERT_FALSE(point.left_out());
    EXPECT_EQ(point.position, position);
    EXPECT_EQ(point.tokens, 256);
    EXPECT_EQ(to_json(point, 1)["d_model"], 32);
    EXPECT_EQ(point.parameters, LanguageModel(small_config(position)).parameter_count());
    EXPECT_EQ(point.model_flops, 256 * training_flops_per_token(small_config(position), 64));
    EXPECT_GE(point.runs, 1);
    EXPECT_GT(point.best_seconds, 0);
    EXPECT_LE(point.best_seconds, point.seconds);
    EXPECT_GT(point.matmul_seconds, 0);
    EXPECT_GT(point.matmul_flops, 0);
    EXPECT_GT(point.ceiling, 0);
    EXPECT_NEAR(point.loss, std::log(257), 2);
    // At least weights, gradients and two moments.
    EXPECT_GT(point.peak_bytes, 16 * point.parameters);
    EXPECT_LT(point.peak_bytes, 1.1 * static_cast<double>(point.planned_bytes)) << "its own, not its neighbours'";
    EXPECT_LE(point.resident_before, point.peak_resident);
  }
}

TEST(TrainBench, NotAllAtOnceWhereMemoryIsShort) {
  TrainBench all(quick_training, ceilings());
  const LanguageModelConfig config = small_config();
  const int64_t bytes = all.measure("own", {config}, 64).front().planned_bytes;
  TrainBenchSettings settings = quick_training;
  settings.max_bytes = 5 * bytes / 2;
  const std::vector<TrainPoint> points = TrainBench(settings, ceilings()).measure("own", {config, config, config}, 64);
  EXPECT_GT(points[1].of_first, 0);
  EXPECT_EQ(points[2].of_first, 0);
  EXPECT_GT(points[2].seconds, 0);
}

TEST(TrainBench, WhatTakesTooLongOrTooMuchIsLeftOut) {
  TrainBenchSettings settings = quick_training;
  settings.longest = 0;
  TrainPoint point = TrainBench(settings, ceilings()).measure("own", {small_config()}, 64).front();
  EXPECT_TRUE(point.left_out());
  EXPECT_GT(point.expected_seconds, 0);
  EXPECT_NE(train_table_row(point, 1).find("skipped: one step"), std::string::npos);
  EXPECT_TRUE(to_json(point, 1)["left_out"]);
  EXPECT_FALSE(to_json(point, 1).contains("seconds"));

  settings = quick_training;
  settings.max_bytes = 1 << 20;
  point = TrainBench(settings, ceilings()).measure("own", {small_config()}, 64).front();
  EXPECT_TRUE(point.too_large);
  EXPECT_GT(point.planned_bytes, 1 << 20);
  EXPECT_NE(train_table_row(point, 1).find("of memory"), std::string::npos);
}

TEST(TrainReport, Arithmetic) {
  const TrainPoint point{.model = "base",
                         .position = Position::sinusoidal,
                         .length = 1024,
                         .tokens = 8192,
                         .model_flops = 6e12,
                         .seconds = 4,
                         .matmul_seconds = 3,
                         .peak_bytes = 1 << 30};
  const nlohmann::ordered_json json = to_json(point, 2e12);
  EXPECT_EQ(json["tokens_per_second"], 2048);
  EXPECT_EQ(json["matmul_share"], 0.75);
  EXPECT_EQ(json["ceiling_share"], 0.75);
  const std::string head = train_table_head("base", preset("base"), {}), row = train_table_row(point, 2e12);
  EXPECT_EQ(head.size() - head.rfind('\n', head.size() - 2) - 1, row.size()) << head << row;
  for (const char* text : {"sinusoidal", "2.05k", "4000 ms", "3000 ms", "75 %", "75.0 %", "1.00 GiB"}) {
    EXPECT_NE(row.find(text), std::string::npos) << text << " in " << row;
  }
}

TEST(TrainReport, AlibiWithAllKeysIsNamed) {
  LanguageModelConfig config = small_config();
  config.transformer.attention.tolerance = 0;
  const std::vector<TrainPoint> points =
      TrainBench(quick_training, ceilings()).measure("own", {small_config(), config}, 64);
  EXPECT_FALSE(points[0].all_keys);
  EXPECT_TRUE(points[1].all_keys);
  EXPECT_NE(train_table_row(points[1], 1).find("  alibi, all keys  "), std::string::npos);
  EXPECT_EQ(to_json(points[1], 1)["position"], "alibi");
  EXPECT_EQ(to_json(points[1], 1)["all_keys"], true);
}

}  // namespace
}  // namespace alibi::bench
