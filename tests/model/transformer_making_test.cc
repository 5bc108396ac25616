// What a Transformer is made of: its parameters, the attention its position method asks for, tables, and what its
// configuration refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "alibi/transformer.h"
#include "model/position.h"
#include "model/small_transformer.h"
#include "positions.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::small_transformer;

TEST(Transformer, WhatPositionMethodsShareStartsTheSame) {
  TransformerConfig config = small_transformer();
  config.position = Position::alibi;
  const Transformer alibi(config, 3);
  for (const Position& position : test::position_cases()) {
    config.position = position;
    config.embedding.max_length = position == Position::learned ? 16 : 0;
    const Transformer other(config, 3);
    size_t shared = 0;
    for (const Parameter& one : alibi.parameters()) {
      for (const Parameter& same : other.parameters()) {
        if (one.name != same.name) continue;
        ++shared;
        EXPECT_EQ(one.value.to_floats(), same.value.to_floats()) << name_of(position) << " " << one.name;
      }
    }
    EXPECT_EQ(shared, alibi.parameters().size()) << name_of(position);
  }
}

TEST(Transformer, SlopesOfEncoders) {
  constexpr float closed = std::numeric_limits<float>::infinity();
  const auto slopes_of = [](int heads, Bidirectional form) {
    TransformerConfig config = small_transformer();
    config.layers = 1;
    config.attention.heads = heads;
    config.attention.causal = false;
    config.attention.bidirectional = form;
    const AttentionOptions options = Positions(config).bias->biases(1, 1).front();
    return std::pair(options.alibi_slopes, options.alibi_slopes_after);
  };
  const auto is = [](std::vector<float> before, std::vector<float> after) { return std::pair(before, after); };
  EXPECT_EQ(slopes_of(4, Bidirectional::symmetric), is(slopes(4), {}));
  // Half of the heads look back, half ahead, with the slopes of half as many.
  EXPECT_EQ(slopes_of(4, Bidirectional::one_sided),
            is({0x1p-4f, closed, 0x1p-8f, closed}, {closed, 0x1p-4f, closed, 0x1p-8f}));
  // Those of twice as many heads, alternating.
  EXPECT_EQ(slopes_of(4, Bidirectional::two_slopes),
            is({0x1p-1f, 0x1p-3f, 0x1p-5f, 0x1p-7f}, {0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f}));
}

TEST(Transformer, SlopesThatAreGiven) {
  using Slopes = std::vector<std::vector<float>>;
  TransformerConfig config = small_transformer();
  EXPECT_EQ(Transformer(config).slopes(), Slopes(2, slopes(3)));
  config.attention.alibi_bias_max = 4;
  EXPECT_EQ(Transformer(config).slopes(), Slopes(2, slopes(3, 4)));
  config.attention.alibi_slopes = {0.5f, 0, 2};
  EXPECT_EQ(Transformer(config).slopes(), Slopes(2, {0.5f, 0, 2}));
  config.attention.alibi_slopes = {0.125f};
  EXPECT_EQ(Transformer(config).slopes(), Slopes(2, {0.125f, 0.125f, 0.125f}));
  EXPECT_EQ(config.position_parameter_count(), 0);
  config.attention.causal = false;
  config.attention.bidirectional = Bidirectional::two_slopes;
  config.attention.alibi_slopes = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Transformer(config).slopes(), Slopes(2, {1, 3, 5, 2, 4, 6}));
  EXPECT_TRUE(Transformer(small_transformer(Position::none)).slopes().empty());
}

TEST(Transformer, LearnedSlopesBeginAsGivenOrByTheSeed) {
  TransformerConfig config = small_transformer();
  config.attention.slope_training = SlopeTraining::learned;
  EXPECT_EQ(config.position_parameter_count(), 2 * 3);
  const auto expect_near = [](const std::vector<float>& found, const std::vector<float>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-6);
  };
  for (const std::vector<float>& layer : Transformer(config, 5).slopes()) expect_near(layer, slopes(3));
  config.attention.alibi_slopes = {0.75f};
  for (const std::vector<float>& layer : Transformer(config, 5).slopes()) expect_near(layer, {0.75f, 0.75f, 0.75f});

  config.attention.slope_training = SlopeTraining::learned_random;
  config.attention.alibi_bias_max = 6;
  const auto random = Transformer(config, 5).slopes();
  EXPECT_EQ(Transformer(config, 5).slopes(), random);
  EXPECT_NE(Transformer(config, 6).slopes(), random);
  EXPECT_NE(random[0], random[1]);
  config.attention.heads = config.d_model;
  for (const std::vector<float>& layer : Transformer(config, 5).slopes()) {
    EXPECT_LE(*std::max_element(layer.begin(), layer.end()), 1);
    EXPECT_GE(*std::max_element(layer.begin(), layer.end()), 0.25f);
    EXPECT_GE(*std::min_element(layer.begin(), layer.end()), 0x1p-6f);
    EXPECT_LE(*std::min_element(layer.begin(), layer.end()), 0x1p-4f);
  }
}

TEST(Transformer, LearnedSlopesAreWhatAttentionTakes) {
  TransformerConfig config = small_transformer();
  config.attention.slope_training = SlopeTraining::learned;
  Transformer model(config, 5);
  for (const float exponent : {-1e30f, -200.0f, 0.0f, 200.0f, 1e30f}) {
    model.parameters().front().value.fill(exponent);
    const float expected = std::exp2(std::clamp(exponent, -30.0f, 10.0f));
    EXPECT_EQ(model.slopes(), std::vector(2, std::vector(3, expected)));
    for (const float y : model(test::random_tensor({1, 9, 24}, 1)).to_floats()) EXPECT_TRUE(std::isfinite(y));
  }
}

TEST(Transformer, FairseqInitializationHasItsBounds) {
  TransformerConfig config = small_transformer();
  config.initialization = Initialization::fairseq;
  const Transformer model(config, 7);
  const auto bound_of = [](const std::string& name) -> double {
    if (name.find("Wqkv.weight") != std::string::npos) return std::sqrt(3.0 / 48);
    if (name.find("out_proj.weight") != std::string::npos) return std::sqrt(6.0 / 48);
    if (name.find("Wqkv.bias") != std::string::npos || name.find("up_proj") != std::string::npos) {
      return 1 / std::sqrt(24.0);
    }
    return name.find("down_proj") != std::string::npos ? 1 / std::sqrt(48.0) : 0;  // 0: a constant
  };
  for (const Parameter& parameter : model.parameters()) {
    const double bound = bound_of(parameter.name), largest = test::max_abs(parameter.value.to_floats());
    if (bound == 0) {
      const bool ones = parameter.name.find("norm") != std::string::npos && parameter.name.ends_with("weight");
      for (const float value : parameter.value.to_floats()) EXPECT_EQ(value, ones ? 1 : 0) << parameter.name;
    } else {
      EXPECT_LE(largest, bound * (1 + 1e-6)) << parameter.name;
      EXPECT_GT(largest, bound * 0.8) << parameter.name;
    }
  }
}

TEST(TransformerConfig, BadValuesAreNamed) {
  const auto message = [](auto change) {
    TransformerConfig config = small_transformer();
    change(config);
    return test::message_of<UsageError>([&] { config.validate(); });
  };
  EXPECT_NE(message([](auto& c) { c.attention.heads = 5; }).find("multiple of heads"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.attention.kv_heads = 2; }).find("kv_heads"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.block.dropout = 1; }).find("dropout"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.block.activation_dropout = 1; }).find("activation_dropout"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.embedding.dropout = -1; }).find("embedding_dropout"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.block.expansion = 0; }).find("expansion"), std::string::npos);
  EXPECT_NE(message([](auto& c) { c.attention.alibi_bias_max = -1; }).find("alibi_bias_max"), std::string::npos);
  const auto of_slopes = [&](std::vector<float> given, SlopeTraining training = SlopeTraining::fixed) {
    return message([&](auto& c) {
      c.attention.alibi_slopes = std::move(given);
      c.attention.slope_training = training;
    });
  };
  EXPECT_NE(of_slopes({1, 2}).find("alibi_slopes are 2 numbers, expected 3 for 3 heads, or one for all"),
            std::string::npos);
  EXPECT_NE(of_slopes({1, 2, -1}).find("alibi_slopes is -1"), std::string::npos);
  EXPECT_NE(of_slopes({HUGE_VALF}).find("alibi_slopes is inf"), std::string::npos);
  EXPECT_NE(of_slopes({NAN}).find("alibi_slopes is nan"), std::string::npos);
  EXPECT_NE(of_slopes({0}, SlopeTraining::learned).find("above 0, where they are learned"), std::string::npos);
  EXPECT_NE(message([](auto& c) {
              c.attention.slope_training = SlopeTraining::learned;
              c.attention.causal = false;
              c.attention.bidirectional = Bidirectional::two_slopes;
            }).find("slope_training is learned, expected fixed for an encoder that is two_slopes"),
            std::string::npos);
  EXPECT_NE(message([](auto& c) {
              c.position = Position::rotary;
              c.d_model = 9;
            }).find("even head_dim"),
            std::string::npos);
  EXPECT_NE(message([](auto& c) {
              c.position = Position::learned;
              c.embedding.max_length = 0;
            }).find("max_length"),
            std::string::npos);
  EXPECT_THROW(position_from("alibis"), UsageError);
}

}  // namespace
}  // namespace alibi::model
