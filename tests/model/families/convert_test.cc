// Models written for other programs.
#include "model/families/convert.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/warning.h"
#include "core/files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/json.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;
using test::TemporaryFolder;

LanguageModelConfig convertible() {
  LanguageModelConfig config = test::small_config(2, 64);
  config.train_length = 99;
  return config;  // 257 words: those of the byte tokenizer
}

TEST(Convert, AGgufFileIsReadBack) {
  const LanguageModel model(convertible(), 3);
  const TemporaryFolder folder;
  const Tensor ids = test::random_ids({1, 30}, 1, 257);
  const Tensor expected = model.logits(ids);
  const std::vector<std::pair<const char*, double>> types = {
      {"f32", 0}, {"f16", 1e-3}, {"bf16", 1e-2}, {"q4_0", .4}, {"q8_0", 2e-2}};
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
  EXPECT_EQ(formats::encoded(values, *formats::weight_type("Q8_0")), expected);
  EXPECT_EQ(formats::encoded(std::vector<float>(32), *formats::weight_type("Q8_0")), std::string(34, '\0'));
}

TEST(Convert, NumbersThatDoNotFitAreRefusedByName) {
  LanguageModel model(convertible(), 3);
  const TemporaryFolder folder;
  const auto set = [&](float value) {
    for (Parameter* parameter : model.parameters()) {
      if (parameter->name == "blocks.1.ffn.up_proj.weight") parameter->value.data<float>()[70] = value;
    }
  };
  const auto write = [&](const char* type) { write_gguf(model, folder / "m.gguf", type); };
  const auto refuses = [&](const char* type) {
    expect_error([&] { write(type); }, "\"blk.1.ffn_up.weight\": number 70 is");
    expect_error([&] { write(type); }, "--type bf16");
    EXPECT_FALSE(core::path_exists(folder / "m.gguf"));
  };
  set(70'000);
  refuses("f16");
  set(8.4e6f);  // 127 x 65,520 and more have no scale
  refuses("q8_0");
  refuses("q4_0");
  expect_error([&] { model.convert_weights(DType::q8_0); }, "\"blocks.1.ffn.up_proj.weight\": number 70 is");
  set(3.4e38f);
  refuses("bf16");
  expect_error([&] { model.convert_weights(DType::bfloat16); }, "blocks.1.ffn.up_proj.weight");
  write("f32");
  std::filesystem::remove(folder / "m.gguf");
  set(std::numeric_limits<float>::quiet_NaN());
  expect_error([&] { write("f32"); }, "number 70 is nan, expected finite numbers");
  for (const auto& [type, value] :
       {std::pair("f16", 65519.0f), {"q8_0", 8.32e6f}, {"q4_0", 5.24e5f}, {"bf16", 3.38e38f}}) {
    set(value);
    write(type);
    formats::Gguf(folder / "m.gguf").load_finite_into("blk.1.ffn_up.weight", *std::make_unique<Tensor>(Shape{256, 64}));
  }
}

TEST(Convert, TensorsOfAnotherTypeAreListed) {
  LanguageModelConfig config = convertible();
  config.transformer.d_model = 72;
  config.transformer.block.expansion = 8.0 / 9;  // rows of 64: whole blocks
  LanguageModel model(config, 3);
  const TemporaryFolder folder;
  std::vector<std::string> others;
  for (const OtherType& other : write_gguf(model, folder / "m.gguf", "q8_0")) {
    EXPECT_EQ(other.type, "f16");
    others.push_back(other.tensor);
  }
  const std::vector<std::string> expected = {"token_embd.weight",   "blk.0.attn_qkv.weight", "blk.0.attn_output.weight",
                                             "blk.0.ffn_up.weight", "blk.1.attn_qkv.weight", "blk.1.attn_output.weight",
                                             "blk.1.ffn_up.weight"};
  EXPECT_EQ(others, expected);
  const formats::Gguf file(folder / "m.gguf");
  EXPECT_EQ(file.info("blk.0.ffn_down.weight").dtype, "Q8_0");
  EXPECT_TRUE(write_gguf(model, folder / "m.gguf", "f16").empty());

  std::string warning;
  set_warning_handler([&](std::string_view text) { warning = text; });
  model.convert_weights(DType::q8_0);
  set_warning_handler({});
  EXPECT_EQ(warning.find("7 matrices keep their type"), 0) << warning;
  EXPECT_NE(warning.find("blocks.0.attn.Wqkv.weight"), std::string::npos) << warning;
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
  refuses("qk_norm_per_head", [](TransformerConfig& t) { t.attention.qk_norm = t.attention.qk_norm_per_head = true; });
  refuses("output_gate", [](TransformerConfig& t) { t.attention.output_gate = true; });
  refuses("canon_kernel", [](TransformerConfig& t) { t.attention.canon_kernel = 4; });
  refuses("full_attention_interval", [](TransformerConfig& t) { t.attention.full_attention_interval = 2; });
  refuses("nope_layer_interval", [](TransformerConfig& t) { t.attention.nope_layer_interval = 2; });
  refuses("nope_heads", [](TransformerConfig& t) { t.attention.nope_heads = 1; });
  refuses("ssmax", [](TransformerConfig& t) { t.attention.ssmax = 0.25f; });
  refuses("sinks", [](TransformerConfig& t) { t.attention.sinks = true; });
  refuses("window", [](TransformerConfig& t) { t.attention.sliding_window = 9; });
  refuses("position", [](TransformerConfig& t) { t.position = Position::none; });
  refuses("up_bias", [](TransformerConfig& t) { t.block.bias = true, t.block.up_bias = false; });
  refuses("causal", [](TransformerConfig& t) { t.attention.causal = false; });
  refuses("embedding_norm", [](TransformerConfig& t) { t.embedding.norm = true; });
  refuses("normalized_head", [](TransformerConfig& t) { t.head.tied = false, t.head.normalized = true; });
  refuses("slope_training", [](TransformerConfig& t) { t.attention.slope_training = SlopeTraining::learned; });
  refuses("residual", [](TransformerConfig& t) { t.block.residual = Residual::normed; });
  LanguageModelConfig grouped = convertible();
  grouped.transformer.attention.kv_heads = 1;
  expect_error([&] { write_for_transformers(LanguageModel(grouped, 1), folder / "hf"); }, "kv_heads");
  expect_error([&] { write_gguf(LanguageModel(convertible(), 1), folder / "m.gguf", "q5_k"); }, "q5_k");
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
