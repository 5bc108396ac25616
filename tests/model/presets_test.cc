#include <gtest/gtest.h>

#include "alibi/error.h"
#include "alibi/train.h"
#include "positions.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::model {
namespace {

TEST(Presets, TheWikitext103ModelHasThePublishedNumberOfParameters) {
  const LanguageModelConfig config = with_position(preset("wikitext103"), Position::alibi, 512);
  config.validate();
  EXPECT_EQ(config.parameter_count(), 246'933'504);
  LanguageModelConfig without_layers = config;
  without_layers.transformer.layers = 0;
  EXPECT_EQ(without_layers.parameter_count(), 45'391'872 + 2'048);  // tables and projections, and the two clusters
  const std::vector<VocabularyBand> bands = config.bands();
  ASSERT_EQ(bands.size(), 3u);
  const std::vector<int64_t> first{0, 20000, 60000}, words{20000, 40000, 207744};
  const std::vector<int> widths{1024, 256, 64};
  for (size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(bands[b].first, first[b]);
    EXPECT_EQ(bands[b].words, words[b]);
    EXPECT_EQ(bands[b].width, widths[b]);
  }
  for (const Position position : {Position::sinusoidal, Position::rotary, Position::none}) {
    EXPECT_EQ(with_position(config, position, 512).parameter_count(), 246'933'504);
    EXPECT_EQ(with_position(config, position, 512).transformer.embedding.scale, 32);
  }
}

TEST(Presets, ThePapersLargeModelHasItsShape) {
  const LanguageModelConfig config = with_vocab_size(preset("paper-1.3b"), 50257);
  EXPECT_EQ(config.transformer.layers, 25);
  EXPECT_EQ(config.transformer.head_dim(), 128);
  EXPECT_EQ(config.transformer.ffn_dim(), 8192);
  EXPECT_EQ(config.parameter_count(), 25LL * (12 * 2048 * 2048 + 2 * 2048) + 2048 + 50257LL * 2048);
}

// Every choice that adds or removes parameters, against a model that was made.
TEST(Presets, ParametersAreCountedWithoutMakingThem) {
  const auto expect_counted = [](const LanguageModelConfig& config) {
    EXPECT_EQ(config.parameter_count(), LanguageModel(config).parameter_count());
  };
  for (const bool adaptive : {false, true}) {
    LanguageModelConfig base = with_vocab_size(test::small_config(2, 48, 6), 300);
    if (adaptive) base.adaptive = AdaptiveConfig{{20, 100}, 4, 0};
    for (const Position& position : test::position_cases()) {
      expect_counted(with_position(base, position, 37));
    }
    for (const bool bias : {false, true}) {
      for (const Norm norm : {Norm::layer_norm, Norm::rms_norm}) {
        LanguageModelConfig config = base;
        config.transformer.block.bias = bias;
        config.transformer.block.norm = norm;
        expect_counted(config);
        config.transformer.head.final_norm = false;
        config.transformer.attention.kv_heads = 2;
        config.transformer.block.activation = Activation::swiglu;
        config.transformer.block.expansion = 2.5;
        expect_counted(config);
      }
    }
    base.transformer.layers = 0;
    expect_counted(base);
  }
  LanguageModelConfig one_band = preset("tiny");
  one_band.adaptive = AdaptiveConfig{};
  expect_counted(one_band);
}

TEST(Presets, AVocabularyLeavesOutTheBandsPastItsEnd) {
  const LanguageModelConfig config = preset("wikitext103");
  EXPECT_EQ(with_vocab_size(config, 60001).bands().size(), 3u);
  EXPECT_EQ(with_vocab_size(config, 60000).bands().size(), 2u);
  EXPECT_EQ(with_vocab_size(config, 257).bands().size(), 1u);
  EXPECT_NO_THROW(with_vocab_size(config, 257).validate());
}

TEST(Presets, EachHasTrainingDefaultsThatHold) {
  for (const std::string& name : preset_names()) EXPECT_NO_THROW(training_defaults(name).validate()) << name;
  const TrainOptions paper = training_defaults("wikitext103");
  EXPECT_EQ(paper.optimizer, Optimizer::nag);
  EXPECT_EQ(paper.learning_rate, 1.0);
  EXPECT_EQ(paper.momentum, 0.99);
  EXPECT_EQ(paper.clip, 0.1);
  EXPECT_EQ(paper.train_length, 512);
  EXPECT_EQ(paper.batch_tokens, 73'728);
  EXPECT_EQ(paper.steps(), 286'000);
  EXPECT_EQ(training_defaults("paper-1.3b").steps(), 50'000);
  EXPECT_THROW(training_defaults("huge"), UsageError);
}

TEST(Presets, BadBandsAreNamed) {
  const auto message = [](const AdaptiveConfig& adaptive) {
    LanguageModelConfig config = preset("tiny");
    config.adaptive = adaptive;
    return test::message_of<UsageError>([&] { config.validate(); });
  };
  EXPECT_EQ(message({{20, 100}, 4, 0.2f}), "no error");
  EXPECT_EQ(message({{100, 20}, 4, 0}),
            "[config] adaptive.cutoffs are 100, 20, expected to rise from above 0 to below vocab_size, 257");
  EXPECT_NE(message({{0}, 4, 0}).find("cutoffs are 0,"), std::string::npos);
  EXPECT_NE(message({{257}, 4, 0}).find("cutoffs are 257,"), std::string::npos);
  EXPECT_NE(message({{20}, 0, 0}).find("factor is 0"), std::string::npos);
  EXPECT_NE(message({{20}, 129, 0}).find("no width for band 1"), std::string::npos);
  EXPECT_NE(message({{20}, 4, 1}).find("dropout is 1"), std::string::npos);
}

TEST(Presets, WithoutDropoutThereIsNoneOfAnyKind) {
  const LanguageModelConfig config = with_dropout(preset("wikitext103"), 0);
  const TransformerConfig& t = config.transformer;
  for (const float rate : {t.block.dropout, t.attention.dropout, t.block.activation_dropout, t.embedding.dropout,
                           config.adaptive->dropout}) {
    EXPECT_EQ(rate, 0);
  }
  const LanguageModelConfig some = with_dropout(preset("wikitext103"), 0.5f);
  EXPECT_EQ(some.transformer.block.dropout, 0.5f);
  EXPECT_EQ(some.transformer.embedding.dropout, 0.5f);
  EXPECT_EQ(some.transformer.attention.dropout, 0.1f);
}

}  // namespace
}  // namespace alibi::model
