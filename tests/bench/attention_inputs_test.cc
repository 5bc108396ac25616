#include "bench/attention_inputs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "alibi/error.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::bench {
namespace {

LanguageModel small_model(Position position) {
  LanguageModelConfig config;
  config.transformer = {.layers = 2, .d_model = 32, .position = position, .attention = {.heads = 4, .kv_heads = 2}};
  config.vocab_size = 20;
  return LanguageModel(config, 1);
}

const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

TEST(AttentionInputs, CapturesEveryLayerOfAModel) {
  const LanguageModel model = small_model(Position::alibi);
  const std::vector<AttentionInputs> layers = capture(model, tokens);
  ASSERT_EQ(layers.size(), 2u);
  for (const AttentionInputs& layer : layers) {
    EXPECT_EQ(layer.q.shape(), (Shape{1, 11, 4, 8}));
    EXPECT_EQ(layer.k.shape(), (Shape{1, 11, 2, 8}));
    EXPECT_EQ(layer.v.shape(), (Shape{1, 11, 2, 8}));
    EXPECT_EQ(layer.options.alibi_slopes, slopes(4));
  }
  EXPECT_GT(test::max_abs_diff(layers[0].q.to_floats(), layers[1].q.to_floats()), 0);
}

TEST(AttentionInputs, FilesGiveBackWhatWasSaved) {
  const test::TemporaryFolder folder;
  for (const Position position : {Position::alibi, Position::t5, Position::none, position_from("gates")}) {
    std::vector<AttentionInputs> layers = capture(small_model(position), tokens);
    for (const bool changed : {false, true}) {
      if (changed) {
        layers[1].options.sinks = {1, 0.5f, -1, 2};
        layers[1].options.softcap = 0.3f;
        layers[1].options.softmax_scale = 0.7f;
        layers[1].options.sliding_window = 3;
      }
      save_inputs(folder / "qkv.safetensors", layers, {{"model", "small"}});
      const std::vector<AttentionInputs> loaded = load_inputs(folder / "qkv.safetensors");
      ASSERT_EQ(loaded.size(), layers.size());
      for (size_t i = 0; i < layers.size(); ++i) {
        const auto output = [](const AttentionInputs& of) {
          return attention(of.q, of.k, of.v, of.options).to_floats();
        };
        EXPECT_EQ(output(loaded[i]), output(layers[i])) << name_of(position) << " layer " << i;
      }
    }
  }
}

TEST(AttentionInputs, FilesWithoutLayersAreRefused) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(load_inputs(folder / "missing.safetensors"), Error);
  std::ofstream(folder / "text.safetensors") << "not tensors";
  EXPECT_THROW(load_inputs(folder / "text.safetensors"), Error);
}

/// Attention of one head taken out equals that head of the whole, for all kinds of bias.
TEST(AttentionInputs, OneHeadOfTheWhole) {
  for (const char* name : {"alibi", "gates", "kerple", "power", "t5", "none"}) {
    const Position position = position_from(name);
    const AttentionShape shape = {.heads = 6, .kv_heads = 2, .head_dim = 16, .position = position};
    AttentionInputs all = random_inputs(shape, 70, 3).first(65);
    all.options.sinks = {0, 1, -1, 2, 3, 0.5f};
    Tensor out(all.q.shape());
    attention(all.q, all.k, all.v, all.options, out);
    for (int64_t head = 0; head < shape.heads; ++head) {
      const AttentionInputs one = all.head(head);
      Tensor out_one(one.q.shape());
      attention(one.q, one.k, one.v, one.options, out_one);
      const double diff = test::max_abs_diff(out_one.to_floats(), out.slice(2, head, head + 1).to_floats());
      EXPECT_TRUE(diff <= 1e-6) << name_of(position) << " head " << head << ": " << diff;
    }
  }
}

TEST(AttentionInputs, ShapesAreChecked) {
  EXPECT_THROW((AttentionShape{.heads = 8, .kv_heads = 3}).validate(), UsageError);
  EXPECT_THROW((AttentionShape{.position = Position::rotary}).validate(), UsageError);
  EXPECT_NO_THROW((AttentionShape{.heads = 8, .kv_heads = 2}).validate());
}

}  // namespace
}  // namespace alibi::bench
