// Layers without the window, and layers and heads without positions.
#include <gtest/gtest.h>

#include "alibi/error.h"
#include "alibi/transformer.h"
#include "model/small_transformer.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::random_tensor;
using test::small_transformer;

TEST(FullAttentionLayers, SeeAllKeys) {
  // The last row of two layers with a window of 3 depends on itself and the four rows before it.
  TransformerConfig config = small_transformer(position_from("rotary+alibi"));
  config.attention.sliding_window = 3;
  Tensor x = random_tensor({1, 13, 24}, 1), other = x.clone();
  other.slice(1, 0, 8).fill(0.5f);
  const auto last = [](const Tensor& y) { return y.slice(1, 12, 13).clone(); };
  for (const int interval : {0, 1, 2, 3}) {
    config.attention.full_attention_interval = interval;
    const Transformer model(config, 7);
    EXPECT_EQ(test::same_bits(last(model(x)), last(model(other))), interval == 0 || interval == 3) << interval;
  }
  config.attention.full_attention_interval = 1;
  const Tensor all_full = Transformer(config, 7)(x);
  config.attention.sliding_window = 0;
  EXPECT_TRUE(test::same_bits(Transformer(config, 7)(x), all_full));
}

TEST(NopeLayers, HaveNeitherRotationNorBias) {
  const Tensor x = random_tensor({2, 13, 24}, 1);
  const auto found = [&](const char* position, int interval) {
    TransformerConfig config = small_transformer(position_from(position));
    config.attention.nope_layer_interval = interval;
    return Transformer(config, 7)(x);
  };
  const Tensor none = found("none", 0);
  for (const char* position : {"alibi", "rotary", "rotary+t5"}) {
    EXPECT_TRUE(test::same_bits(found(position, 1), none)) << position;
    EXPECT_TRUE(test::same_bits(found(position, 3), found(position, 0))) << position << ": there are two layers";
    EXPECT_GT(test::max_abs_diff(found(position, 2), none), 1e-4) << position;
    EXPECT_GT(test::max_abs_diff(found(position, 2), found(position, 0)), 1e-4) << position;
  }
  TransformerConfig config = small_transformer(Position::sinusoidal);
  config.attention.nope_layer_interval = 2;
  test::expect_error<UsageError>([&] { config.validate(); }, "nope_layer_interval is 2, expected 0 for sinusoidal");
  config = small_transformer();
  config.attention.nope_layer_interval = 2;
  EXPECT_EQ(Transformer(config, 7).slopes().back(), std::vector<float>(3, 0));
}

TEST(NopeHeads, HaveNeitherRotationNorBias) {
  const Tensor x = random_tensor({2, 13, 24}, 1);
  // Attention of the last head is the one of a model without positions: the other heads' values are zero.
  const auto last_head = [&](const char* position, int heads) {
    TransformerConfig config = small_transformer(position_from(position));
    config.layers = 1;
    config.attention.nope_heads = heads;
    Transformer model(config, 7);
    for (Parameter& parameter : model.parameters()) {
      if (parameter.name.find("attn.out_proj.weight") == std::string::npos) continue;
      for (int64_t i = 0; i < 24 * 24; ++i) {
        if (i % 24 < 16) parameter.value.data<float>()[i] = 0;  // [outputs, inputs]
      }
    }
    return model(x);
  };
  const Tensor none = last_head("none", 0);
  for (const char* position : {"alibi", "rotary", "rotary+alibi"}) {
    EXPECT_TRUE(test::same_bits(last_head(position, 1), none)) << position;
    EXPECT_GT(test::max_abs_diff(last_head(position, 0), none), 1e-4) << position;
  }
  TransformerConfig config = small_transformer(position_from("rotary+alibi"));
  config.attention.nope_heads = 1;
  EXPECT_EQ(Transformer(config, 7).slopes().front(), (std::vector<float>{0.0625f, 0.00390625f, 0}));
  config.attention.alibi_slopes = {0.5f, 0.25f};
  EXPECT_EQ(Transformer(config, 7).slopes().front(), (std::vector<float>{0.5f, 0.25f, 0}));
  const auto refused = [](const char* position, const auto& change) {
    TransformerConfig bad = small_transformer(position_from(position));
    bad.attention.nope_heads = 1;
    change(bad.attention);
    test::expect_error<UsageError>([&] { bad.validate(); }, "nope_heads is ");
  };
  for (const char* position : {"none", "t5", "gates", "sinusoidal", "rotary+t5"}) refused(position, [](auto&) {});
  refused("alibi", [](AttentionConfig& a) { a.nope_heads = a.heads; });
  refused("alibi", [](AttentionConfig& a) { a.kv_heads = 1; });
  refused("alibi", [](AttentionConfig& a) { a.slope_training = SlopeTraining::learned; });
}

TEST(Slopes, OfZeroLeaveTheRotation) {
  const Tensor x = random_tensor({2, 13, 24}, 1);
  TransformerConfig config = small_transformer(position_from("rotary+alibi"));
  const Tensor with_bias = Transformer(config, 7)(x);
  config.attention.alibi_slopes = {0};
  const Tensor found = Transformer(config, 7)(x), rotary = Transformer(small_transformer(Position::rotary), 7)(x);
  EXPECT_TRUE(test::max_abs_diff(found, rotary) <= 1e-6);
  EXPECT_GT(test::max_abs_diff(found, with_bias), 1e-4);
}

}  // namespace
}  // namespace alibi::model
