// The Forgetting Transformer of flash-linear-attention: logits of its own code, and models that are written for it.
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
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;

/// tests/transformers/compare.py has the same function.
float formula_value(uint32_t number, uint32_t i) {
  uint32_t bits = i * 0x9e3779b9u + number * 0x85ebca6bu + 1;
  bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
  bits = (bits ^ bits >> 12) * 0x297a2d39u;
  return static_cast<float>(bits >> 8) / 0x1p23f - 1;
}

/// The tensors of a case in their order: the shapes follow from the configuration.
void write_tensors(const formats::JsonObject& config, const std::vector<std::string>& names,
                   const std::filesystem::path& file) {
  const auto size = [&](const char* key, int64_t fallback) { return config.get_int_or(key, fallback, 1, 1000); };
  const int64_t width = size("hidden_size", 1), heads = size("num_heads", 1), words = size("vocab_size", 1);
  const int64_t keys = width / heads * size("num_kv_heads", heads), hidden = size("intermediate_size", 256);
  std::vector<formats::NamedTensor> tensors;
  for (const std::string& name : names) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    const int64_t rows = is("embeddings") || is("lm_head")              ? words
                         : is("k_proj") || is("v_proj") || is("k_norm") ? keys
                         : is("f_proj")                                 ? heads
                         : is("gate_proj") || is("up_proj")             ? hidden
                                                                        : width;
    const bool is_vector = is("norm") || is(".bias");
    Tensor tensor(is_vector ? Shape{rows} : Shape{rows, is("down_proj") ? hidden : width});
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = formula_value(static_cast<uint32_t>(tensors.size()), static_cast<uint32_t>(i));
      tensor.data<float>()[i] = is_vector ? 1 + value / 2 : value;
    }
    tensors.push_back({name, tensor});
  }
  formats::write_safetensors(file, tensors);
}

TEST(ForgettingFamily, LogitsAreThoseOfItsOwnCode) {
  const formats::JsonObject all = formats::read_json_object(test::test_sources() / "model/families/forgetting.json");
  for (const formats::Json& one : all.raw().at("cases")) {
    const formats::JsonObject given(one, "");
    const test::TemporaryFolder folder;
    folder.write("config.json", one.at("config").dump());
    write_tensors(given.object("config"), given.get<std::vector<std::string>>("tensors"), folder / "model.safetensors");
    const LanguageModel model = LanguageModel::load(folder.path());
    const ModelFiles files(folder.path());
    EXPECT_EQ(files.family, "forgetting_transformer");
    EXPECT_TRUE(files.slopes().empty());
    const auto ids = one.at("ids").get<std::vector<int32_t>>();
    const auto expected = one.at("logits").get<std::vector<double>>();
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor whole = model.logits(Tensor::from(ids, {1, length}));
    EXPECT_LE(test::relative_diff(test::doubles(whole), expected), 1e-5);
    // Token by token.
    Context context(model);
    for (int64_t i = 0; i < length; ++i) {
      const Tensor next =
          model.next_logits(Tensor::from(std::span(ids).subspan(static_cast<size_t>(i), 1), {1, 1}), context);
      EXPECT_LE(test::relative_diff(test::doubles(next), test::doubles(whole.slice(1, i, i + 1))), 1e-5) << i;
    }
    // Written from our own layout, the same tensors have the same bytes.
    const test::TemporaryFolder written;
    write_for_transformers(model, written.path());
    const formats::Safetensors before(folder.path()), after(written.path());
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const formats::TensorInfo& tensor : before.tensors()) {
      EXPECT_TRUE(test::same_bits(before.load(tensor.name), after.load(tensor.name))) << tensor.name;
    }
  }
}

LanguageModelConfig forgetting() {
  LanguageModelConfig config = preset("tiny");
  TransformerConfig& t = config.transformer;
  t.layers = 2;
  t.d_model = 32;
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
