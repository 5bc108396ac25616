#include <gtest/gtest.h>

#include "alibi/train.h"

namespace alibi::training {
namespace {

/// Two layers of 8, each with 2 norms of 8, attention 4 * 8 * 8 and feed-forward 2 * 8 * 32: 784 parameters.
LanguageModelConfig small_config() {
  LanguageModelConfig config;
  config.transformer.layers = 2;
  config.transformer.d_model = 8;
  config.transformer.attention.heads = 2;
  config.transformer.block.expansion = 4;
  config.transformer.block.bias = false;
  config.vocab_size = 50;
  return config;
}

// Per layer, 8 channels meet 5 of 10 keys twice, 2 FLOPs each: 160, and twice that in the backward pass.
constexpr double kLayers = 6 * 2 * 784, kAttention = 2 * 3 * 160;

TEST(TrainingFlops, ATiedTableCountsOnce) {
  EXPECT_EQ(training_flops_per_token(small_config(), 10), kLayers + kAttention + 6 * 50 * 8);
  EXPECT_EQ(training_flops_per_token(small_config(), 20), kLayers + 2 * kAttention + 6 * 50 * 8);
}

TEST(TrainingFlops, TablesThatAreLookedUpCountNothing) {
  LanguageModelConfig config = small_config();
  const double expected = training_flops_per_token(config, 10);
  for (const Position position : {Position::learned, Position::t5, Position::sinusoidal}) {
    EXPECT_EQ(training_flops_per_token(with_position(config, position, 1000), 10), expected);
  }
}

TEST(TrainingFlops, AnAdaptiveSoftmaxCostsItsHeadAndTheTargetsBand) {
  LanguageModelConfig config = small_config();
  config.adaptive = AdaptiveConfig{{10, 30}, 2, 0};  // bands of 10, 20 and 20 words of 8, 4 and 2 elements
  const double rest = kLayers + kAttention;
  const double head = (10 + 2) * 8, band1 = 8 * 4 + 20 * 4, band2 = 8 * 2 + 20 * 2;
  const double in0 = 8 * 8, in1 = 8 * 4, in2 = 8 * 2;
  const auto flops = [&](const std::vector<int32_t>& tokens) { return training_flops_per_token(config, 10, tokens); };
  EXPECT_EQ(flops({0, 9}), rest + 6 * (in0 + head));
  EXPECT_EQ(flops({10, 29, 29}), rest + 6 * (in1 + head + band1));
  EXPECT_EQ(flops({30, 49}), rest + 6 * (in2 + head + band2));
  EXPECT_EQ(flops({1, 2, 3, 4, 10, 29, 30, 49}),
            rest + 6 * (in0 / 2 + in1 / 4 + in2 / 4 + head + band1 / 4 + band2 / 4));
  EXPECT_EQ(flops({}), rest + 6 * (in0 + head + band1));  // the dearest on the way in and on the way out
}

}  // namespace
}  // namespace alibi::training
