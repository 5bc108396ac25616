// Models written for other programs.
#include "model/families/convert.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/json.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;
using test::TemporaryFolder;

LanguageModelConfig convertible() {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 2;
  config.transformer.d_model = 64;
  config.train_length = 99;
  return config;  // 257 words: those of the byte tokenizer
}

TEST(Convert, AGgufFileIsReadBack) {
  const LanguageModel model(convertible(), 3);
  const TemporaryFolder folder;
  const Tensor ids = test::random_ids({1, 30}, 1, 257);
  const Tensor expected = model.logits(ids);
  const std::vector<std::pair<const char*, double>> types = {{"f32", 0}, {"f16", 1e-3}, {"bf16", 1e-2}, {"q8_0", 2e-2}};
  for (const auto& [type, tolerance] : types) {
    SCOPED_TRACE(type);
    write_gguf(model, folder / "m.gguf", type);
    const LanguageModel read = LanguageModel::load(folder / "m.gguf");
    EXPECT_EQ(read.config().train_length, 99);
    EXPECT_TRUE(test::relative_diff(test::doubles(read.logits(ids)), test::doubles(expected)) <= tolerance);
  }
  const formats::Gguf file(folder / "m.gguf");
  EXPECT_EQ(file.info("blk.0.ffn_up.weight").dtype, "Q8_0");
  EXPECT_EQ(file.info("blk.0.attn_norm.weight").dtype, "F32");
  EXPECT_EQ(file.metadata().get_int("general.file_type", 0, 100), 7);
  const auto tokens = file.metadata().get<std::vector<std::string>>("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 257);
  EXPECT_EQ(tokens['a'], "a");
  EXPECT_EQ(file.metadata().get_int("tokenizer.ggml.bos_token_id", 0, 256), 256);
  EXPECT_EQ(file.metadata().get<std::vector<std::string>>("tokenizer.ggml.merges").size(), 1);
}

TEST(Convert, GroupedHeadsBiasesAndAnOwnHeadGoIntoGguf) {
  LanguageModelConfig config = convertible();
  TransformerConfig& t = config.transformer;
  t.attention.kv_heads = 2;
  t.attention.alibi_bias_max = 6;
  t.attention.clip_qkv = 2;
  t.block.bias = true;
  t.block.expansion = 3;
  t.head.tied = false;
  const LanguageModel model(config, 3);
  const TemporaryFolder folder;
  write_gguf(model, folder / "m.gguf", "f32");
  const Tensor ids = test::random_ids({1, 30}, 1, 257);
  EXPECT_TRUE(test::same_bits(LanguageModel::load(folder / "m.gguf").logits(ids), model.logits(ids)));
}

/// The bytes that gguf 0.19 of Python gives for these numbers: halves are rounded away from zero.
TEST(Convert, BlocksOfQ8AreThoseOfTheirPackage) {
  std::vector<float> values(32);
  values[0] = 127;
  values[1] = 2.5f;
  values[2] = -3.5f;
  values[3] = -1.7794286f;
  values[4] = 0.6269274f;
  std::string expected("\x00\x3c\x7f\x03\xfc\xfe\x01", 7);
  expected.resize(34);
  EXPECT_EQ(formats::encoded(values, "Q8_0"), expected);
  EXPECT_EQ(formats::encoded(std::vector<float>(32), "Q8_0"), std::string(34, '\0'));
}

TEST(Convert, WhatAFormatCannotExpressIsRefusedByName) {
  const TemporaryFolder folder;
  const auto refuses = [&](const char* field, const auto& change, bool also_as_folder = true) {
    LanguageModelConfig config = convertible();
    change(config.transformer);
    const LanguageModel model(config, 1);
    expect_error([&] { write_gguf(model, folder / "m.gguf", "f32"); }, field);
    EXPECT_FALSE(core::path_exists(folder / "m.gguf"));
    if (also_as_folder) expect_error([&] { write_for_transformers(model, folder / "hf"); }, field);
  };
  refuses("activation", [](TransformerConfig& t) { t.block.activation = Activation::swiglu; });
  refuses("norm", [](TransformerConfig& t) { t.block.norm = Norm::rms_norm; });
  refuses("logit_scale", [](TransformerConfig& t) { t.head.logit_scale = 2; });
  refuses("softmax_scale", [](TransformerConfig& t) { t.attention.softmax_scale = 2; });
  refuses("qk_norm", [](TransformerConfig& t) { t.attention.qk_norm = true; });
  refuses("window", [](TransformerConfig& t) { t.attention.sliding_window = 9; });
  refuses("position", [](TransformerConfig& t) { t.position = Position::none; });
  refuses("residual", [](TransformerConfig& t) { t.block.residual = Residual::normed; });
  LanguageModelConfig grouped = convertible();
  grouped.transformer.attention.kv_heads = 1;
  expect_error([&] { write_for_transformers(LanguageModel(grouped, 1), folder / "hf"); }, "kv_heads");
  expect_error([&] { write_gguf(LanguageModel(convertible(), 1), folder / "m.gguf", "q4_0"); }, "q4_0");
}

TEST(Convert, AFolderForTransformersIsAnMpt) {
  const TemporaryFolder folder;
  const LanguageModel model(convertible(), 3);
  write_for_transformers(model, folder / "hf");
  const formats::JsonObject json = formats::read_json_object(folder / "hf" / "config.json");
  EXPECT_EQ(json.get<std::string>("model_type"), "mpt");
  const Tensor ids = test::random_ids({1, 30}, 1, 257);
  EXPECT_TRUE(test::same_bits(LanguageModel::load(folder / "hf").logits(ids), model.logits(ids)));
}

}  // namespace
}  // namespace alibi::model
