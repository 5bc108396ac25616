// The Forgetting Transformer of flash-linear-attention: models that are written for it.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/families/convert.h"
#include "model/families/model_files.h"
#include "shared_data.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;

LanguageModelConfig forgetting() {
  LanguageModelConfig config = test::small_config();
  TransformerConfig& t = config.transformer;
  t.position = position_from("gates");
  t.attention.kv_heads = 2;
  t.block.norm = Norm::rms_norm;
  t.block.activation = Activation::swiglu;
  t.block.expansion = 1.5;
  config.train_length = 99;
  return config;
}

TEST(ForgettingFamily, OwnModelsAreWrittenAndRead) {
  for (const bool with_norms : {false, true}) {
    LanguageModelConfig config = forgetting();
    config.transformer.attention.qk_norm = config.transformer.attention.qk_norm_per_head = with_norms;
    config.transformer.attention.output_gate = with_norms;
    config.transformer.head.tied = with_norms;
    if (with_norms) config.transformer.attention.tolerance = 0;  // how a model is computed, not what it is
    const LanguageModel model(config, 3);
    const test::TemporaryFolder folder;
    write_for_transformers(model, folder.path());
    const LanguageModel read = LanguageModel::load(folder.path());
    EXPECT_EQ(read.config().train_length, 99);
    EXPECT_TRUE(read.has_tokenizer());
    EXPECT_EQ(formats::read_json_object(folder / "config.json").get_int("eos_token_id", 0, 999), 256);
    const Tensor ids = test::random_ids({1, 30}, 1, 257);
    EXPECT_TRUE(test::same_bits(read.logits(ids), model.logits(ids)));
  }
}

TEST(ForgettingFamily, WhatItCannotExpressIsRefusedByName) {
  const test::TemporaryFolder folder;
  const auto refuses = [&](const char* field, const auto& change) {
    LanguageModelConfig config = forgetting();
    change(config.transformer);
    const std::string expected = "forgetting_transformer cannot express: " + std::string(field);
    expect_error([&] { write_for_transformers(LanguageModel(config, 1), folder / "hf"); }, expected.c_str());
  };
  refuses("position rotary+gates", [](TransformerConfig& t) { t.position = t.position + Position::rotary; });
  refuses("gate_tokens 0", [](TransformerConfig& t) { t.attention.position_numbers["gate_tokens"] = 0; });
  refuses("activation gelu", [](TransformerConfig& t) { t.block.activation = Activation::gelu; });
  refuses("norm layer_norm", [](TransformerConfig& t) { t.block.norm = Norm::layer_norm; });
  refuses("bias true", [](TransformerConfig& t) { t.block.bias = true; });
  refuses("sinks true", [](TransformerConfig& t) { t.attention.sinks = true; });
  refuses("sliding_window 8", [](TransformerConfig& t) { t.attention.sliding_window = 8; });
  refuses("softmax_scale 2", [](TransformerConfig& t) { t.attention.softmax_scale = 2; });
  refuses("qk_norm_per_head false", [](TransformerConfig& t) {
    t.attention.qk_norm = true;
    t.attention.qk_norm_eps = 1e-5f;
  });
}

TEST(ForgettingFamily, WhatIsNotSupportedIsRefusedByName) {
  const formats::JsonObject all = formats::read_json_object(test::test_sources() / "model/families/forgetting.json");
  const test::TemporaryFolder folder;
  const auto refuses = [&](const char* key, const formats::Json& value) {
    formats::Json config = all.raw().at("cases").at(0).at("config");
    config[key] = value;
    folder.write("config.json", config.dump());
    formats::write_safetensors(folder / "model.safetensors", std::vector<formats::NamedTensor>());
    expect_error([&] { LanguageModel::load(folder.path()); }, (std::string(key) + " is ").c_str());
  };
  refuses("qkv_bias", true);
  refuses("window_size", 64);
  refuses("attnres_block_size", 2);
  refuses("hidden_act", "powlu");
  refuses("num_kv_heads", 0);
  refuses("intermediate_size", 0);
}

}  // namespace
}  // namespace alibi::model
