// Encoders: trained with masked tokens, saved, resumed, evaluated at any length.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/train.h"
#include "evaluate/masking.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/batches.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

using test::short_run;
using test::stream;

LanguageModelConfig encoder_config(Bidirectional form = Bidirectional::symmetric) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.causal = false;
  config.transformer.attention.bidirectional = form;
  config.transformer.block.dropout = 0.1f;
  return with_vocab_size(with_position(config, Position::alibi, 16), 257);
}

TEST(Encoder, TheMaskIsTheTokenAfterAllOthers) {
  const LanguageModelConfig config = encoder_config();
  EXPECT_EQ(config.vocab_size, 258);
  EXPECT_EQ(config.mask_token(), 257);
  EXPECT_EQ(test::small_config().mask_token(), std::nullopt);
  EXPECT_EQ(LanguageModel(config).tokenizer().kind(), "byte");
}

TEST(Encoder, BlocksAreTheTokensThemselvesWithSomeMasked) {
  const std::vector<int32_t> tokens = stream(40);
  const BlockOrder order(tokens, 16, 256, 1);
  const evaluation::Masking masking(0.3, core::Random(1, 2), 257);
  const std::vector<int64_t> blocks{1, 0};
  const Batch batch = order.masked_batch(blocks, masking, 32);
  const std::vector<int32_t> ids = batch.ids.to_ints(), targets = batch.targets.to_ints();
  int64_t asked = 0;
  for (size_t i = 0; i < 32; ++i) {
    const auto [input, target] = masking(tokens[i < 16 ? 16 + i : i - 16], 32 + i);
    EXPECT_EQ(ids[i], input);
    EXPECT_EQ(targets[i], target);
    asked += target >= 0 ? 1 : 0;
  }
  EXPECT_TRUE(asked > 3 && asked < 20);
}

/// A text shorter than a block comes several times in one batch; places are those of whole blocks all the same.
TEST(Encoder, ShortBlocksBeginAtThePlacesOfWholeOnes) {
  const std::vector<int32_t> tokens = stream(11);
  const BlockOrder order(tokens, 16, 256, 1);
  const evaluation::Masking masking(0.5, core::Random(1, 2), 257);
  const std::vector<int64_t> blocks{0, 0, 0};
  const std::vector<int32_t> targets = order.masked_batch(blocks, masking, 64).targets.to_ints();
  ASSERT_EQ(targets.size(), 33u);
  for (size_t i = 0; i < 33; ++i) {
    EXPECT_EQ(targets[i], masking(tokens[i % 11], 64 + i / 11 * 16 + i % 11).target) << i;
  }
}

/// The loss is the mean over the predicted tokens, and the gradients are those of that mean.
TEST(Encoder, GradientsAreOfTheMeanOverWhatIsMasked) {
  LanguageModelConfig config = encoder_config();
  config.transformer.block.dropout = 0;
  LanguageModel model(config, 1);
  TrainOptions options = short_run();
  const std::vector<int32_t> tokens = stream(1000);
  BlockOrder order(tokens, options.train_length, 256, options.seed);
  compute_gradients(model, order, 0, options);
  double squares = 0;
  for (const Parameter* parameter : model.parameters()) {
    for (const float g : parameter->gradient.to_floats()) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  const auto loss_after = [&](double step) {  // along the gradient
    std::vector<Tensor> before;
    for (Parameter* parameter : model.parameters()) {
      before.push_back(parameter->value.clone());
      const std::vector<float> gradient = parameter->gradient.to_floats();
      for (size_t i = 0; i < gradient.size(); ++i) {
        parameter->value.data<float>()[i] += static_cast<float>(step / std::sqrt(squares)) * gradient[i];
      }
    }
    LanguageModel other(config, 1);
    for (size_t i = 0; i < before.size(); ++i) {
      other.parameters()[i]->value.copy_from(model.parameters()[i]->value);
      model.parameters()[i]->value.copy_from(before[i]);
    }
    other.weights_changed();
    return compute_gradients(other, order, 0, options).loss;
  };
  constexpr double step = 0.01;
  EXPECT_NEAR((loss_after(step) - loss_after(-step)) / (2 * step) / std::sqrt(squares), 1, 0.02);
}

TEST(Encoder, LearnsWhatIsMasked) {
  for (const Bidirectional form : {Bidirectional::symmetric, Bidirectional::two_slopes}) {
    LanguageModel model(encoder_config(form), 1);
    TrainOptions options = short_run();
    options.train_tokens = 100 * options.batch_tokens;
    const TrainResult result = train(model, stream(2000), options);
    EXPECT_GT(result.loss.front(), 5);
    EXPECT_LT(evaluate(model, stream(500), {.length = 16}).nll(), 1.8);  // letters alone: 2.2
    // It sees on both sides: at the start of a window too.
    const Evaluation longer = evaluate(model, stream(500), {.length = 64});
    EXPECT_LT(longer.nll(), 1.8);
  }
}

TEST(Encoder, MasksFollowTheUpdateHoweverItIsCut) {
  const auto losses = [](int64_t micro_batch, uint64_t seed) {
    LanguageModelConfig config = encoder_config();
    config.transformer.block.dropout = 0;
    LanguageModel model(config, 1);
    TrainOptions options = short_run();
    options.train_tokens = 4 * options.batch_tokens;
    options.micro_batch_tokens = micro_batch;
    options.seed = seed;
    return train(model, stream(1000), options).loss;
  };
  const std::vector<float> whole = losses(256, 3), cut = losses(16, 3), other = losses(256, 4);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], cut[i], 1e-4);
  EXPECT_NE(whole, other);
}

TEST(Encoder, ResumedRunsHaveTheBitsOfOthers) {
  const std::vector<int32_t> tokens = stream(1000), valid = stream(300);
  TrainOptions options = short_run();
  options.train_tokens = 6 * options.batch_tokens;
  options.eval_steps = 2;
  TrainRun plain;
  plain.valid = valid;
  LanguageModel undisturbed(encoder_config(), 1);
  const TrainResult expected = train(undisturbed, tokens, options, plain);
  const test::TemporaryFolder folder;
  for (const int64_t stop : {2, 3, 100}) {
    LanguageModel model(encoder_config(), 1);
    TrainRun run = plain;
    run.folder = folder / "model";
    run.resume = true;
    int64_t done = 0;
    run.on_step = [&](const TrainStatus& status) { done = status.step; };
    run.should_stop = [&] { return done >= stop; };
    const TrainResult result = train(model, tokens, options, run);
    if (stop < 100) continue;
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(test::weights(model), test::weights(undisturbed));
    for (size_t i = 0; i < expected.evaluations.size(); ++i) {
      EXPECT_EQ(result.evaluations[i].loss, expected.evaluations[i].loss);
    }
    model.save(folder / "saved");
    const LanguageModel loaded = LanguageModel::load(folder / "saved");
    EXPECT_FALSE(loaded.config().transformer.attention.causal);
    EXPECT_EQ(evaluate(loaded, valid, {.length = 50}).nll_sum, evaluate(model, valid, {.length = 50}).nll_sum);
  }
}

TEST(Encoder, EvaluationScoresTheSameMaskedTokensAtAnyLength) {
  const LanguageModel model(encoder_config(), 1);
  const std::vector<int32_t> text = stream(333);
  const evaluation::Masking masking(0.15, core::Random(0, 0x3a5c), 257);
  int64_t count = 0;
  for (uint64_t t = 0; t < text.size(); ++t) count += masking.asks(t) ? 1 : 0;
  for (const auto& [length, stride] : {std::pair<int64_t, int64_t>(1, 1), {7, 7}, {64, 64}, {64, 5}, {1000, 1000}}) {
    EXPECT_EQ(evaluate(model, text, {.length = length, .stride = stride}).tokens, count) << length;
  }
  // By hand, in windows that do not overlap.
  double sum = 0;
  for (size_t begin = 0; begin < text.size(); begin += 50) {
    std::vector<int32_t> ids, targets;
    for (size_t t = begin; t < std::min(text.size(), begin + 50); ++t) {
      ids.push_back(masking(text[t], t).input);
      targets.push_back(masking(text[t], t).target);
    }
    const auto length = static_cast<int64_t>(ids.size());
    for (const float nll : model.nll(Tensor::from(ids, {1, length}), Tensor::from(targets, {1, length}))) {
      sum += static_cast<double>(nll);
    }
  }
  EXPECT_NEAR(evaluate(model, text, {.length = 50}).nll_sum, sum, 1e-3);
  EXPECT_NE(evaluate(model, text, {.length = 50, .mask_seed = 1}).nll_sum, sum);
  EXPECT_NEAR(static_cast<double>(evaluate(model, text, {.length = 50, .mask_rate = 1}).tokens), 333, 0);
  test::expect_error([&] { evaluate(model, std::span(text).first(1), {.mask_rate = 1e-6}); }, "score more text");
  test::expect_error<UsageError>([&] { evaluate(model, text, {.mask_rate = 0}); }, "mask_rate");
}

}  // namespace
}  // namespace alibi::training
