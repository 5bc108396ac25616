// Variants of blocks, embeddings and heads in a whole language model: cached, saved, and trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "alibi/language_model.h"
#include "model/small_transformer.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

struct Variant {
  std::string name;
  LanguageModelConfig config;
};

std::vector<Variant> variants() {
  LanguageModelConfig plain;
  plain.transformer = test::small_transformer();
  plain.vocab_size = 37;
  std::vector<Variant> all;
  const auto add = [&](const char* name, const auto& change) {
    LanguageModelConfig config = plain;
    change(config.transformer);
    all.push_back({name, config});
  };
  add("attention", [](TransformerConfig& t) {
    t.attention.qk_norm = true;
    t.attention.sinks = true;
    t.attention.output_gate = true;
    t.attention.clip_qkv = 1.5;
    t.attention.softmax_scale = 0.2;
    t.attention.kv_heads = 1;
  });
  add("post_norm", [](TransformerConfig& t) {
    t.block.residual = Residual::normed;
    t.embedding.norm = true;
    t.block.bias = false;
    t.block.norm_bias = NormBias::always;
  });
  add("canon", [](TransformerConfig& t) { t.attention.canon_kernel = 4; });
  add("scalable_softmax", [](TransformerConfig& t) {
    t.position = position_from("rotary+alibi");
    t.attention.ssmax = 0.4f;
  });
  add("nope_layers", [](TransformerConfig& t) {
    t.position = position_from("rotary+alibi");
    t.attention.nope_layer_interval = 2;
  });
  add("nope_heads", [](TransformerConfig& t) {
    t.position = position_from("rotary+alibi");
    t.attention.nope_heads = 1;
  });
  add("full_attention_layers", [](TransformerConfig& t) {
    t.position = position_from("rotary+t5");
    t.attention.sliding_window = 5;
    t.attention.full_attention_interval = t.attention.nope_layer_interval = 2;
  });
  add("head", [](TransformerConfig& t) {
    t.head.tied = false;
    t.head.logit_scale = 0.5;
    t.embedding.scale = 2;
  });
  return all;
}

class ModelVariant : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, ModelVariant, testing::ValuesIn(variants()), [](const auto& i) { return i.param.name; });

TEST_P(ModelVariant, ReadInPiecesItGivesTheSame) {
  const LanguageModel model(GetParam().config, 3);
  const Tensor ids = test::random_ids({1, 60}, 1, 37), targets = test::random_ids({1, 60}, 2, 37);
  const std::vector<float> whole = model.nll(ids, targets);
  Context context(model);
  std::vector<float> found;
  for (const auto& [begin, end] : {std::pair(0, 25), {25, 26}, {26, 27}, {27, 60}}) {
    const std::vector<float> piece =
        model.nll(ids.slice(1, begin, end).clone(), targets.slice(1, begin, end).clone(), context);
    found.insert(found.end(), piece.begin(), piece.end());
  }
  ASSERT_EQ(found.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(found[i], whole[i], 2e-5) << i;
}

TEST_P(ModelVariant, SavedAndLoadedItHasTheSameBits) {
  const LanguageModel model(GetParam().config, 3);
  const test::TemporaryFolder folder;
  model.save(folder.path());
  const Tensor ids = test::random_ids({2, 20}, 1, 37);
  EXPECT_TRUE(test::same_bits(LanguageModel::load(folder.path()).logits(ids), model.logits(ids)));
}

TEST_P(ModelVariant, BfloatsAreCloseToFloats) {
  LanguageModel model(GetParam().config, 3);
  const Tensor ids = test::random_ids({2, 20}, 1, 37);
  const Tensor floats = model.logits(ids);
  model.set_precision(Precision::bf16);
  EXPECT_LT(test::relative_diff(test::doubles(model.logits(ids)), test::doubles(floats)), 0.05);
}

TEST_P(ModelVariant, GradientsAreThoseOfTheLoss) {
  LanguageModel model(GetParam().config, 3);
  const Tensor ids = test::random_ids({2, 11}, 1, 37), targets = test::random_ids({2, 11}, 2, 37);
  const auto loss = [&] {
    double sum = 0;
    for (const float each : model.nll(ids, targets)) sum += each;
    return sum;
  };
  model.zero_gradients();
  model.accumulate_gradients(ids, targets, 1, {});
  for (size_t i = 0; Parameter * parameter : model.parameters()) {
    const Tensor original = parameter->value.clone(), direction = test::random_tensor(original.shape(), 50 + i++);
    const float step = GetParam().config.transformer.attention.clip_qkv > 0 ? 2e-4f : 2e-3f;  // kinks
    const auto loss_at = [&](float by) {
      for (int64_t j = 0; j < original.elements(); ++j) {
        parameter->value.data<float>()[j] = original.data<float>()[j] + by * direction.data<float>()[j];
      }
      const double value = loss();
      parameter->value.copy_from(original);
      return value;
    };
    const double found = (loss_at(step) - loss_at(-step)) / (2.0 * step);
    const std::vector<double> gradient = test::doubles(parameter->gradient);
    const double size = std::sqrt(test::dot(gradient, gradient));
    const double rounding = 4e-6 / static_cast<double>(step);  // of the sums of 22 losses, which are float32
    EXPECT_NEAR(found, test::dot(gradient, test::doubles(direction)), 1e-2 * size + std::max(1e-2, rounding))
        << parameter->name;
    EXPECT_GT(size, 0) << parameter->name;
  }
}

TEST(NormalizedHead, IsRefusedInTraining) {
  LanguageModelConfig config = variants().back().config;
  config.transformer.head.normalized = true;
  LanguageModel model(config, 3);
  model.zero_gradients();
  const Tensor ids = test::random_ids({1, 8}, 1, 37);
  test::expect_error([&] { model.accumulate_gradients(ids, ids, 1, {}); }, "normalized head");
  config.transformer.head.tied = true;
  test::expect_error([&] { config.validate(); }, "normalized_head is true");
}

TEST(PaddedBatch, RowsAreReadAsIfAlone) {
  const LanguageModel model(variants().front().config, 3);
  const Tensor ids = test::random_ids({3, 6}, 1, 37);
  const Tensor mask = Tensor::from(std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}, {3, 6});
  const Tensor logits = model.logits(ids, mask);
  const auto expect_row = [&](int64_t row, int64_t begin, int64_t end) {
    const Tensor alone = model.logits(ids.slice(0, row, row + 1).slice(1, begin, end).clone());
    EXPECT_EQ(logits.slice(0, row, row + 1).slice(1, begin, end).to_floats(), alone.to_floats());
  };
  expect_row(0, 0, 6);
  expect_row(1, 0, 2);
  expect_row(2, 3, 6);
  EXPECT_EQ(logits.slice(0, 1, 2).slice(1, 2, 6).to_floats(), std::vector<float>(4 * 37, 0.0f));
  const Tensor holes = Tensor::from(std::vector<int32_t>{1, 0, 1, 1, 1, 1}, {1, 6});
  test::expect_error([&] { model.logits(ids.slice(0, 0, 1).clone(), holes); }, "zeros between ones");
}

TEST(GenerateIds, NeedsNoTokenizer) {
  const LanguageModel model(variants().front().config, 3);
  GenerateOptions options;
  options.max_tokens = 5;
  options.temperature = 0;
  const std::vector<int32_t> prompt = {1, 2, 3}, ids = model.generate_ids(prompt, options);
  ASSERT_EQ(ids.size(), 5);
  std::vector<int32_t> text = prompt;
  for (const int32_t id : ids) {
    const std::vector<float> logits = model.next_logits(Tensor::from(text, {1, std::ssize(text)})).to_floats();
    EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin());
    text.push_back(id);
  }
  EXPECT_THROW(model.generate_ids({}, options), Error);
}

}  // namespace
}  // namespace alibi::model
