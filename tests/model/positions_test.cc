// Position methods as three choices: names, combinations, and what combinations compute.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "alibi/attention.h"
#include "alibi/context.h"
#include "alibi/language_model.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::model {
namespace {

TEST(PositionMethods, NamesAreThoseOfTheChoices) {
  EXPECT_EQ(position_from("rotary+alibi"), (Position{.input = {}, .rotation = "rotary", .bias = "alibi"}));
  EXPECT_EQ(position_from("alibi+sinusoidal+rotary"), Position::sinusoidal + Position::rotary + Position::alibi);
  EXPECT_EQ(name_of(Position::alibi + Position::rotary), "rotary+alibi");
  EXPECT_EQ(name_of(Position::t5 + Position::learned), "learned+t5");
  EXPECT_EQ(Position::alibi + Position::none, Position::alibi);
  for (const std::string& name : position_names()) EXPECT_EQ(name_of(position_from(name)), name);
  test::expect_error<UsageError>([] { position_from("rotary+polar"); }, "no position method called 'polar'");
  for (const char* name : {"", "+", "rotary+", "+alibi", "rotary++alibi", "none+alibi", "Rotary"}) {
    test::expect_error<UsageError>([name] { position_from(name); }, "no position method called '");
  }
  test::expect_error<UsageError>([] { position_from("alibi+t5"); }, "'alibi' and 't5' are both the bias of a model");
  test::expect_error<UsageError>([] { position_from("rotary+alibi+rotary"); }, "both the rotation");
  TransformerConfig config = test::small_transformer();
  for (const Position& wrong : {Position{.input = "polar"}, Position{.input = "alibi"}}) {
    config.position = wrong;
    test::expect_error<UsageError>([&] { config.validate(); }, "position.input is '");
  }
}

TEST(PositionMethods, FieldsOfEachMethodApply) {
  TransformerConfig config = test::small_transformer(Position::rotary + Position::t5);
  EXPECT_EQ(config.position_parameter_count(), 8 * 3);
  config.attention.t5_buckets = 1;
  test::expect_error<UsageError>([&] { config.validate(); }, "t5_buckets is 1");
  config = test::small_transformer(Position::rotary + Position::t5);
  config.attention.rotary_theta = 1;
  test::expect_error<UsageError>([&] { config.validate(); }, "rotary_theta is 1");
  config.attention.rotary_theta = 10000;
  config.attention.alibi_bias_max = -1;  // of another method
  config.validate();
  EXPECT_EQ(with_position(preset("tiny"), Position::learned + Position::t5, 40).transformer.embedding.max_length, 40);
}

TEST(PositionMethods, TablesOfTwoMethodsHaveTheirOwnRandomNumbers) {
  TransformerConfig config = test::small_transformer(Position::learned + Position::t5);
  const Transformer both(config, 3), learned(test::small_transformer(Position::learned), 3);
  EXPECT_TRUE(test::same_bits(both.parameters()[0].value, learned.parameters()[0].value));
  ASSERT_EQ(both.parameters()[1].name, "relative_bias.weight");
  EXPECT_NE(both.parameters()[1].value.to_floats()[0] / static_cast<float>(config.attention.t5_init),
            both.parameters()[0].value.to_floats()[0] / 0.02f);
}

/// The inputs of a layer's attention in a model with steep slopes. `steps` has parameters and their value in each row,
/// per number of the row, from 1 on.
struct CapturedAttention {
  Tensor q, k, v;
  AttentionOptions options;
};
CapturedAttention captured(const Position& position, int64_t length, const std::map<std::string, float>& steps = {}) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 1;
  config.transformer.attention.alibi_bias_max = 4;  // slopes 1/2 to 1/16
  LanguageModel model(with_position(config, position, 128), 3);
  for (Parameter* const parameter : model.parameters()) {
    const auto step = steps.find(parameter->name);
    if (step == steps.end()) continue;
    const int64_t heads = parameter->value.shape().back();
    for (int64_t i = 0; i < parameter->value.elements(); ++i) {
      parameter->value.data<float>()[i] = step->second * static_cast<float>(1 + i / heads);
    }
  }
  CapturedAttention captured;
  Pass pass;
  pass.on_attention = [&](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
    captured = {q.clone(), k.clone(), v.clone(), options};
  };
  hidden(model, test::random_ids({1, length}, 1, 257), pass);
  return captured;
}

TEST(PositionMethods, ARotationLeavesTheBoundOfFarKeysAsItIs) {
  int64_t visited_without_rotation = 0;
  for (const Position& position : {Position::alibi, Position::rotary + Position::alibi}) {
    CapturedAttention of = captured(position, 2048);
    AttentionState state;
    const Tensor skipped = attention(of.q, of.k, of.v, of.options, &state);
    of.options.tolerance = 0;
    const Tensor all = attention(of.q, of.k, of.v, of.options);
    EXPECT_LE(test::max_abs_diff(skipped, all), 1e-6) << name_of(position);
    EXPECT_LT(state.stats.blocks_visited, state.stats.blocks_total / 3) << name_of(position);
    RecordProperty("visited_" + std::to_string(visited_without_rotation > 0),
                   fmt::format("{} of {}", state.stats.blocks_visited, state.stats.blocks_total));
    if (visited_without_rotation == 0) visited_without_rotation = state.stats.blocks_visited;
    EXPECT_NEAR(static_cast<double>(state.stats.blocks_visited), static_cast<double>(visited_without_rotation),
                0.02 * static_cast<double>(visited_without_rotation));
  }
}

TEST(PositionMethods, TheListSaysWhichBiasesSkipFarKeys) {
  const std::map<std::string, float> steep = {
      {"relative_bias.weight", -1}, {"kerple.r1", 6}, {"kerple.r2", 1}, {"power.r1", 0.5f}, {"power.r2", 0.7f}};
  for (const PositionMethod& method : position_methods()) {
    if (!std::holds_alternative<PositionMethod::Make<PositionBias>>(method.make)) continue;
    CapturedAttention of = captured(position_from(method.name), 2048, steep);
    AttentionState state;
    const Tensor skipped = attention(of.q, of.k, of.v, of.options, &state);
    EXPECT_EQ(std::string_view(method.cost).find("far keys are skipped") != std::string_view::npos,
              state.stats.blocks_visited < state.stats.blocks_total / 2)
        << method.name << " visits " << state.stats.blocks_visited << " of " << state.stats.blocks_total;
    of.options.tolerance = 0;
    EXPECT_LE(test::max_abs_diff(skipped, attention(of.q, of.k, of.v, of.options)), 1e-6) << method.name;
  }
}

TEST(PositionMethods, KeysOfARotatedModelCanBeEvicted) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.alibi_bias_max = 2;
  const LanguageModel model(with_position(config, Position::rotary + Position::alibi, 64), 3);
  const Tensor ids = test::random_ids({1, 1500}, 1, 257), targets = test::random_ids({1, 1500}, 2, 257);
  Context all(model), some(model, {.memory = 450'000});
  EXPECT_LE(test::max_abs_diff(model.nll(ids, targets, some), model.nll(ids, targets, all)), 1e-4);
  EXPECT_GT(some.certificate().keys, 0);
  EXPECT_LT(some.bytes(), all.bytes());
}

/// Slopes that are the exponential of the first token's input: a bias that depends on the tokens.
class TokenSlopes : public PositionBias {
 public:
  using PositionBias::PositionBias;

  void add_input(int, const Tensor& x, AttentionOptions& bias) const override {
    const std::vector<float> first = x.slice(1, 0, 1).clone().to_floats();
    for (int h = 0; h < config_.attention.heads; ++h) {
      bias.alibi_slopes.push_back(0.1f * std::exp(first[static_cast<size_t>(h)]));
    }
  }
  BiasSums sums(int, const AttentionOptions&) const override { return {.dslopes = Tensor({config_.attention.heads})}; }
  void backward(int, const BiasSums& sums, const Tensor& x, Tensor& dx) const override {
    const std::vector<float> first = x.slice(1, 0, 1).clone().to_floats(), dslopes = sums.dslopes.to_floats();
    for (size_t h = 0; h < dslopes.size(); ++h) dx.data<float>()[h] += dslopes[h] * 0.1f * std::exp(first[h]);
  }
};

TEST(PositionMethods, ABiasMayDependOnTheInputOfTheLayer) {
  const TransformerConfig config = test::small_transformer(Position::none);
  for (const Keep keep : {Keep::all, Keep::sums}) {
    Transformer model(config, 7);
    auto& state = core::state_of(model);
    const Tensor x = test::random_tensor({1, 13, 24}, 1), dy = test::random_tensor({1, 13, 24}, 2);
    Pass pass;
    const Tensor without = state.forward(x, keep, pass).clone();
    state.positions.bias = std::make_unique<TokenSlopes>(config);
    EXPECT_GT(test::max_abs_diff(state.forward(x, keep, pass), without), 1e-3);
    zero_gradients(pointers_to(state.parameters));
    const Tensor dx = state.backward(dy, pass).clone();
    const Tensor direction = test::random_tensor(x.shape(), 3);
    const auto loss = [&](float step) {
      Tensor moved = x.clone();
      for (int64_t i = 0; i < moved.elements(); ++i) moved.data<float>()[i] += step * direction.data<float>()[i];
      return test::dot(test::doubles(state.forward(moved, keep, pass)), test::doubles(dy));
    };
    const double found = test::dot(test::doubles(dx), test::doubles(direction));
    const double expected = (loss(1e-3f) - loss(-1e-3f)) / 2e-3;
    EXPECT_NEAR(found, expected, 2e-3 * std::abs(expected));
  }
}

}  // namespace
}  // namespace alibi::model
