#include "alibi/train.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "alibi/error.h"
#include "alibi/runtime.h"
#include "nn/products.h"
#include "positions.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/batches.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

using test::short_run;
using test::small_model;
using test::stream;

TEST(BlockOrder, EveryTokenIsPredictedOncePerEpochAfterItsPredecessorInTheStream) {
  std::vector<int32_t> tokens(103);
  std::iota(tokens.begin(), tokens.end(), 1000);
  for (const int64_t length : {1, 7, 10, 103, 200}) {
    BlockOrder order(tokens, length, 7, 42);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::map<int32_t, int> seen;
      for (int64_t n = 0; n < order.blocks_per_epoch(); ++n) {
        const int64_t block = order.block_at(epoch * order.blocks_per_epoch() + n);
        const Batch batch = order.batch(std::span(&block, 1));
        const std::vector<int32_t> ids = batch.ids.to_ints(), targets = batch.targets.to_ints();
        for (size_t i = 0; i < targets.size(); ++i) {
          ++seen[targets[i]];
          EXPECT_EQ(ids[i], targets[i] == 1000 ? 7 : targets[i] - 1);
        }
        EXPECT_EQ((targets.front() - 1000) % length, 0);
      }
      ASSERT_EQ(seen.size(), tokens.size());
      for (const auto& [token, times] : seen) EXPECT_EQ(times, 1) << token;
    }
  }
}

TEST(BlockOrder, OnlyScoredTokensAreTargetsAndCount) {
  LanguageModel model = small_model();
  std::vector<int32_t> tokens(64, 3);
  std::vector<uint8_t> scored(64, 0);
  for (const size_t place : {5u, 31u, 40u}) scored[place] = 1;
  TrainOptions options = short_run();
  options.train_length = 16;
  options.batch_tokens = options.micro_batch_tokens = 64;
  options.train_tokens = 64;
  BlockOrder order(tokens, 16, 256, 1, scored), all(tokens, 16, 256, 1);
  const int64_t blocks[] = {0, 1, 2, 3};
  const Batch batch = order.batch(blocks);
  EXPECT_EQ(batch.ids.to_ints(), all.batch(blocks).ids.to_ints());
  const std::vector<int32_t> targets = batch.targets.to_ints();
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_EQ(targets[i], scored[i] ? 3 : -1);
  const Update update(model, order, 0, options);
  EXPECT_EQ(update.targets(), 3);
  EXPECT_EQ(update.tokens(), 64);
  // The loss is the mean over the targets.
  double expected = 0;
  for (const float nll : model.nll(batch.ids, batch.targets)) expected += static_cast<double>(nll);
  EXPECT_NEAR(compute_gradients(model, order, 0, options).loss, expected / 3, 1e-5);
  scored.pop_back();
  EXPECT_THROW(BlockOrder(tokens, 16, 256, 1, scored), Error);
}

TEST(BlockOrder, IsShuffledFromSeedAndEpoch) {
  const std::vector<int32_t> tokens(1000, 1);
  const auto epoch = [&](uint64_t seed, int64_t number) {
    BlockOrder order(tokens, 10, 0, seed);
    std::vector<int64_t> blocks;
    for (int64_t n = 0; n < 100; ++n) blocks.push_back(order.block_at(100 * number + n));
    return blocks;
  };
  EXPECT_EQ(epoch(1, 0), epoch(1, 0));
  EXPECT_NE(epoch(1, 0), epoch(1, 1));
  EXPECT_NE(epoch(1, 0), epoch(2, 0));
  EXPECT_THROW(BlockOrder(tokens, 0, 0, 1), UsageError);
  EXPECT_THROW(BlockOrder({}, 4, 0, 1), Error);
}

TEST(Train, LearnsWhatIsThereToLearn) {
  for (const Position& position : test::position_cases()) {
    LanguageModel model = small_model(position);
    const TrainResult result = train(model, stream(3008), short_run());
    ASSERT_EQ(result.loss.size(), 30u);
    EXPECT_EQ(result.tokens, 30 * 256);
    EXPECT_GT(result.loss.front(), 4.5) << name_of(position);
    EXPECT_TRUE(result.loss.back() <= 0.6f * result.loss.front()) << name_of(position) << " " << result.loss.back();
  }
}

TEST(Train, WritesACheckpointAfterEverySoManyUpdates) {
  const test::TemporaryFolder folder;
  LanguageModel model = small_model();
  TrainOptions options = short_run();
  options.train_tokens = 8 * options.batch_tokens;
  TrainRun run;
  run.folder = folder / "model";
  run.checkpoint_steps = 3;
  run.checkpoint_minutes = 0;
  std::vector<int64_t> newest;
  run.on_step = [&](const TrainStatus&) {  // before this update's own
    const std::optional<CheckpointInfo> found = newest_checkpoint(run.folder);
    newest.push_back(found ? found->step : 0);
  };
  train(model, stream(1000), options, run);
  EXPECT_EQ(newest, (std::vector<int64_t>{0, 0, 0, 3, 3, 3, 6, 6}));
}

/// Without momentum and decay an update is as long as the clipped gradient, times the rate.
TEST(Train, UpdatesAreClipped) {
  for (const double clip : {0.05, 0.1, 0.0}) {
    LanguageModel model = small_model();
    const std::vector<float> before = test::weights(model);
    TrainOptions options = short_run();
    options.train_tokens = options.batch_tokens;
    options.optimizer = Optimizer::nag;
    options.momentum = options.weight_decay = 0;
    options.schedule_kind = ScheduleKind::constant;
    options.warmup_fraction = 0;
    options.learning_rate = 0.1;
    options.clip = clip;
    double norm = 0, moved = 0;
    train(model, stream(1000), options, [&](const TrainStatus& status) { norm = status.gradient_norm; });
    const std::vector<float> after = test::weights(model);
    for (size_t i = 0; i < after.size(); ++i) moved += std::pow(static_cast<double>(after[i] - before[i]), 2);
    ASSERT_GT(norm, 0.2);
    const double expected = 0.1 * (clip > 0 ? clip : norm);
    EXPECT_NEAR(std::sqrt(moved), expected, 2e-3 * expected) << clip;
  }
}

TEST(Train, ReportsTheRateOfTheUpdateItself) {
  LanguageModel model = small_model();
  TrainOptions options = short_run();
  options.train_tokens = 6 * 256;
  options.warmup_steps = 3;
  std::vector<double> rates;
  train(model, stream(1000), options, [&](const TrainStatus& status) { rates.push_back(status.learning_rate); });
  ASSERT_EQ(rates.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(rates[i], options.schedule().at(static_cast<int64_t>(i))) << i;
  EXPECT_NE(rates[0], rates[1]);
}

TEST(Train, SameSeedSameBitsAtAnyThreadCountAndOtherSeedOtherLosses) {
  const test::RuntimeGuard guard;
  const auto run = [](int count, uint64_t seed) {
    set_threads(count);
    LanguageModel model = small_model(Position::alibi, 0.1f);
    TrainOptions options = short_run();
    options.train_tokens = 6 * 256;
    options.seed = seed;
    std::vector<float> losses = train(model, stream(1003), options).loss;
    for (const Parameter* parameter : model.parameters()) losses.push_back(parameter->value.to_floats().back());
    return losses;
  };
  const std::vector<float> expected = run(1, 1);
  EXPECT_EQ(run(2, 1), expected);
  EXPECT_EQ(run(3, 1), expected);
  EXPECT_NE(run(2, 2), expected);
}

TEST(Train, PartsOfABatchAddUpToTheBatch) {
  const auto losses = [](int64_t micro_batch_tokens) {
    LanguageModel model = small_model();
    TrainOptions options = short_run();
    options.train_tokens = 5 * 256;
    options.micro_batch_tokens = micro_batch_tokens;
    return train(model, stream(1003), options).loss;
  };
  const std::vector<float> whole = losses(1 << 20), parts = losses(64);
  EXPECT_TRUE(test::max_abs_diff(whole, parts) <= 1e-4);
}

TEST(Train, ReportsEachStep) {
  LanguageModel model = small_model();
  int64_t calls = 0;
  train(model, stream(1000), short_run(), [&](const TrainStatus& status) {
    EXPECT_EQ(status.step, ++calls);
    EXPECT_EQ(status.steps, 30);
    EXPECT_GT(status.gradient_norm, 0);
    EXPECT_GT(status.tokens_per_second, 0);
  });
  EXPECT_EQ(calls, 30);
}

TEST(Train, ALossThatIsNoNumberStopsWithTheStep) {
  LanguageModel model = small_model();
  TrainOptions options = short_run();
  options.learning_rate = 1e30;
  options.warmup_fraction = 0;
  test::expect_error([&] { train(model, stream(1000), options); }, "step 2");
}

TEST(Train, BadOptionsAreUsageErrors) {
  LanguageModel model = small_model();
  for (const auto& change : std::vector<std::function<void(TrainOptions&)>>{
           [](auto& o) { o.train_length = 0; }, [](auto& o) { o.train_tokens = 0; },
           [](auto& o) { o.learning_rate = 0; }, [](auto& o) { o.batch_tokens = 0; }, [](auto& o) { o.beta2 = 1; },
           [](auto& o) { o.clip = -1; }, [](auto& o) { o.batch_tokens = o.train_tokens + 1; },
           [](auto& o) { o.train_length = 1001; }}) {
    TrainOptions options = short_run();
    change(options);
    EXPECT_THROW(train(model, stream(1000), options), UsageError);
  }
  EXPECT_THROW(train(model, {}, short_run()), Error);
}

TEST(Train, Bfloat16LearnsAsFloat32Does) {
  const auto last_loss = [](Precision precision) {
    LanguageModel model = small_model();
    TrainOptions options = short_run();
    options.precision = precision;
    const TrainResult result = train(model, stream(3008), options);
    EXPECT_EQ(model.precision(), Precision::f32);  // afterwards
    return result.loss.back();
  };
  const float exact = last_loss(Precision::f32), rounded = last_loss(Precision::bf16);
  EXPECT_NE(rounded, exact);
  EXPECT_TRUE(std::abs(rounded - exact) <= 0.02f * exact) << rounded << " " << exact;
}

TEST(Train, RecomputingChangesNoBit) {
  const auto losses = [](bool recompute) {
    LanguageModel model = small_model(Position::alibi, 0.1f);
    TrainOptions options = short_run();
    options.train_tokens = 5 * 256;
    options.recompute = recompute;
    return train(model, stream(1003), options).loss;
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(TrainPlan, MemoryIsWhatTensorsTake) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 2;
  bool first_in_bf16 = true;  // later ones find what threads keep for products in it
  for (const bool recompute : {false, true}) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      TrainOptions options;
      options.train_length = 256;
      options.batch_tokens = options.micro_batch_tokens = 2048;
      options.train_tokens = 2 * 2048;
      options.precision = precision;
      options.recompute = recompute;
      const TrainPlan plan = plan_training(config, options);
      EXPECT_EQ(plan.updates, 2);
      EXPECT_EQ(plan.tokens, 4096);
      if (precision == Precision::bf16 && std::exchange(first_in_bf16, false)) {
        LanguageModel warm(config, 1);
        train(warm, stream(4096), options);
      }
      const int64_t kept = precision == Precision::bf16 ? threads() * nn::bytes_to_widen(DType::bfloat16) : 0;
      const int64_t before = tensor_bytes() - kept;
      reset_peak_tensor_bytes();
      LanguageModel model(config, 1);
      EXPECT_EQ(plan.parameters, model.parameter_count());
      train(model, stream(4096), options);
      const auto measured = static_cast<double>(peak_tensor_bytes() - before);
      EXPECT_NEAR(static_cast<double>(plan.bytes()), measured, 0.1 * measured)
          << name_of(precision) << (recompute ? ", recompute" : "");
    }
  }
}

TEST(Train, LearnedSlopesMoveInEachLayerAndDoNotDecay) {
  LanguageModel model = small_model(Position::alibi, 0, SlopeTraining::learned);
  const auto before = model.slopes();
  TrainOptions options = short_run();
  options.weight_decay = 10;  // it would halve an exponent
  train(model, stream(1000), options);
  const auto after = model.slopes();
  ASSERT_EQ(after.size(), 2u);
  EXPECT_NE(after[0], after[1]);
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t h = 0; h < before[layer].size(); ++h) {
      EXPECT_NE(after[layer][h], before[layer][h]);
      EXPECT_NEAR(std::log2(after[layer][h] / before[layer][h]), 0, 0.25);  // 30 updates at 5e-3 and less
    }
  }
}

}  // namespace
}  // namespace alibi::training
