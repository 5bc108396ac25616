// What a config.json means that leaves things out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <utility>

#include "core/files.h"
#include "formats/json.h"
#include "model/families/own_as_family.h"
#include "model/own_folder.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

/// The keys that every config.json has.
const char* const kMin = R"({"model_type": "alibi", "d_model": 24, "n_heads": 4, "n_layers": 3, "vocab_size": 99,
    "no_bias": true, "norm_type": "layernorm", "norm_eps": 0.5, "attn_config": {"alibi": true},
    "ffn_config": {"ffn_hidden_size": 96}, "alibi": {"position": "alibi", "activation": "gelu", "train_length": 512}})";

/// `changes` is a JSON merge patch: null removes a key.
LanguageModelConfig config_of(const std::string& changes) {
  const test::TemporaryFolder folder;
  formats::Json json = formats::Json::parse(kMin);
  json.merge_patch(formats::Json::parse(changes));
  folder.write("config.json", json.dump());
  return read_own_config(folder.path()).model;
}

TEST(OwnConfig, DefaultsOfWhatIsNotSaid) {
  const LanguageModelConfig config = config_of("{}");
  const TransformerConfig& t = config.transformer;
  EXPECT_EQ(config.train_length, 512);
  EXPECT_EQ(config.transformer.embedding.scale, 1);
  EXPECT_FALSE(config.adaptive.has_value());
  EXPECT_EQ(t.key_heads(), 4);
  EXPECT_EQ(t.ffn_dim(), 4 * 24);
  EXPECT_EQ(t.attention.alibi_bias_max, 8);
  EXPECT_TRUE(t.head.final_norm);
  EXPECT_TRUE(t.attention.causal);
  for (const float dropout : {t.block.dropout, t.attention.dropout, t.block.activation_dropout, t.embedding.dropout}) {
    EXPECT_EQ(dropout, 0);
  }
}

TEST(OwnConfig, AMissingKeyIsNamed) {
  for (const std::string changes :
       {R"({"d_model": null})", R"({"no_bias": null})", R"({"norm_type": null})", R"({"norm_eps": null})",
        R"({"attn_config": null})", R"({"ffn_config": null})", R"({"attn_config": {"alibi": null}})",
        R"({"alibi": {"activation": null}})", R"({"ffn_config": {"ffn_hidden_size": null}})",
        R"({"alibi": {"position": null}})", R"({"alibi": {"train_length": null}})"}) {
    const std::string key = changes.substr(0, changes.find("\": null"));
    const std::string message = test::message_of([&] { config_of(changes); });
    EXPECT_NE(message.find(key.substr(key.rfind('"') + 1) + " is missing"), std::string::npos) << message;
  }
  const auto message = [](const char* position) {
    return test::message_of([&] {
      config_of(fmt::format(R"({{"attn_config": {{"alibi": false}}, "alibi": {{"position": "{}"}}}})", position));
    });
  };
  EXPECT_NE(message("learned").find("alibi.max_length is missing"), std::string::npos) << message("learned");
  EXPECT_NE(message("t5").find("alibi.t5_buckets is missing"), std::string::npos) << message("t5");
}

TEST(OwnConfig, WhatWouldChangeTheResultIsRefusedByName) {
  const auto refused = [](const std::string& changes, const char* key) {
    const std::string message = test::message_of([&] { config_of(changes); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("not supported"), std::string::npos) << message;
  };
  for (const char* key : {"clip_qkv", "qk_ln", "qk_gn", "prefix_lm", "attn_logit_softcapping", "softmax_scale"}) {
    refused(fmt::format(R"({{"attn_config": {{"{}": true}}}})", key), key);
    EXPECT_NO_THROW(config_of(fmt::format(R"({{"attn_config": {{"{}": null}}}})", key)));
    EXPECT_NO_THROW(config_of(fmt::format(R"({{"attn_config": {{"{}": false}}}})", key)));
  }
  refused(R"({"attn_config": {"sliding_window_size": 7}})", "sliding_window_size");
  refused(R"({"attn_config": {"fused_qkv": false}})", "fused_qkv");
  for (const char* key : {"logit_scale", "final_logit_softcapping", "block_overrides"}) {
    refused(fmt::format(R"({{"{}": 2}})", key), key);
  }
  refused(R"({"tie_word_embeddings": false})", "tie_word_embeddings");
  refused(R"({"embedding_fraction": 0.5})", "embedding_fraction");
  const auto contradicts = [](const char* uses_alibi, const char* position) {
    const std::string changes =
        fmt::format(R"({{"attn_config": {{"alibi": {}}}, "alibi": {{"position": "{}"}}}})", uses_alibi, position);
    EXPECT_NE(test::message_of([&] { config_of(changes); }).find("position is '"), std::string::npos) << changes;
  };
  contradicts("true", "rotary");
  contradicts("false", "alibi");
}

TEST(OwnConfig, AKeyOfANewerVersionIsRefusedByName) {
  EXPECT_NO_THROW(config_of(R"({"alibi": {"version": "0.9.0"}})"));
  const std::string message = test::message_of([] { config_of(R"({"alibi": {"version": "0.9.0", "bend": 2}})"); });
  EXPECT_NE(message.find("alibi.bend is unknown"), std::string::npos) << message;
  EXPECT_NE(message.find("the file is of version 0.9.0"), std::string::npos) << message;
}

/// What is read from a config.json, the file as it is, and why other programs do not open it.
struct Read {
  LanguageModelConfig model;
  formats::Json json;
  std::vector<std::string> differences;
};
Read read_file_of(const std::filesystem::path& folder) {
  const formats::JsonObject json = formats::read_json_object(folder / "config.json");
  const LanguageModelConfig config = read_own_config(folder).model;
  return {config, json.raw(), family_of_own().folder.differences(config)};
}
Read saved(const LanguageModelConfig& config) {
  const test::TemporaryFolder folder;
  LanguageModel(config, 1).save(folder.path());
  return read_file_of(folder.path());
}

LanguageModelConfig config_of_two_layers() {
  LanguageModelConfig config = test::small_config(2, 24, 6);
  config.train_length = 77;
  return config;
}

TEST(OwnConfig, OthersFindNumbersOfTheTypesThatTheyInsistOn) {
  LanguageModelConfig config = config_of_two_layers();
  config.transformer.attention.dropout = 0.5f;
  config.transformer.block.norm_eps = 0.25f;
  const Read read = saved(config);
  const formats::Json& json = read.json;
  EXPECT_EQ(json["model_type"], "mpt");
  EXPECT_EQ(json["architectures"][0], "MPTForCausalLM");
  EXPECT_TRUE(read.differences.empty());
  for (const char* key : {"d_model", "n_heads", "n_layers", "expansion_ratio", "max_seq_len", "vocab_size"}) {
    EXPECT_TRUE(json[key].is_number_integer()) << key;
  }
  for (const char* key : {"attn_pdrop", "alibi_bias_max"}) {
    EXPECT_TRUE(json["attn_config"][key].is_number_integer()) << key;
  }
  EXPECT_EQ(json["norm_eps"], json["layer_norm_epsilon"]);
  EXPECT_EQ(read.model.transformer.block.norm_eps, 0.25f);
  EXPECT_EQ(read.model.transformer.attention.dropout, 0.5f);
  // They refuse to run past max_seq_len, and ALiBi is there to run past the length of training.
  EXPECT_EQ(json["max_seq_len"], 65536);
  EXPECT_EQ(read.model.train_length, 77);
  config.train_length = 100000;
  EXPECT_EQ(saved(config).json["max_seq_len"], 100000);
}

TEST(OwnConfig, AModelThatOthersCannotRunIsNotCalledTheirs) {
  const auto differs = [](const char* how, const std::function<void(LanguageModelConfig&)>& change) {
    LanguageModelConfig config = config_of_two_layers();
    change(config);
    const Read read = saved(config);
    const formats::Json& json = read.json;
    EXPECT_EQ(json["model_type"], "alibi") << how;
    EXPECT_EQ(json["architectures"][0], "AlibiForCausalLM") << how;
    EXPECT_EQ(read.model.train_length, 77);
    ASSERT_EQ(read.differences.size(), 1) << how;
    EXPECT_EQ(read.differences[0], how);
  };
  using Config = LanguageModelConfig;
  differs("position rotary", [](Config& c) { c.transformer.position = Position::rotary; });
  differs("position none", [](Config& c) { c.transformer.position = Position::none; });
  differs("alibi_bias_max 7.5", [](Config& c) { c.transformer.attention.alibi_bias_max = 7.5; });
  {
    LanguageModelConfig config = config_of_two_layers();
    config.transformer.attention.causal = false;
    config.transformer.attention.bidirectional = Bidirectional::one_sided;
    const Read read = saved(config);
    const formats::Json& json = read.json;
    EXPECT_EQ(json["architectures"][0], "AlibiForMaskedLM");
    EXPECT_EQ(json["mask_token_id"], config.vocab_size - 1);
    EXPECT_EQ(read.differences, (std::vector<std::string>{"causal false", "bidirectional one_sided"}));
    EXPECT_FALSE(read.model.transformer.attention.causal);
    EXPECT_EQ(read.model.transformer.attention.bidirectional, Bidirectional::one_sided);
  }
  differs("alibi_slopes 0.5", [](Config& c) { c.transformer.attention.alibi_slopes = {0.5f}; });
  differs("slope_training learned", [](Config& c) { c.transformer.attention.slope_training = SlopeTraining::learned; });
  differs("sliding_window 128", [](Config& c) { c.transformer.attention.sliding_window = 128; });
  differs("activation swiglu", [](Config& c) { c.transformer.block.activation = Activation::swiglu; });
  differs("activation relu", [](Config& c) { c.transformer.block.activation = Activation::relu; });
  differs("activation gelu_tanh", [](Config& c) { c.transformer.block.activation = Activation::gelu_tanh; });
  differs("norm rms_norm", [](Config& c) { c.transformer.block.norm = Norm::rms_norm; });
  differs("biases", [](Config& c) { c.transformer.block.bias = true; });
  differs("2 kv_heads for 6 heads", [](Config& c) { c.transformer.attention.kv_heads = 2; });
  differs("ffn_dim 48 for d_model 24", [](Config& c) { c.transformer.block.expansion = 2; });
  differs("final_norm false", [](Config& c) { c.transformer.head.final_norm = false; });
  differs("embedding_scale 2", [](Config& c) { c.transformer.embedding.scale = 2; });
  differs("adaptive vocabulary", [](Config& c) { c.adaptive = AdaptiveConfig{.cutoffs = {100}}; });
}

TEST(OwnConfig, EveryFieldIsReadAsItWasWritten) {
  LanguageModelConfig config;
  config.vocab_size = 300;
  config.train_length = 77;
  config.transformer.embedding.scale = 3;
  config.adaptive = AdaptiveConfig{.cutoffs = {100, 200}, .factor = 2, .dropout = 0.125f};
  TransformerConfig& t = config.transformer;
  t.layers = 1;
  t.d_model = 24;
  t.attention.heads = 6;
  t.attention.kv_heads = 2;
  t.block.expansion = 2.5;
  t.block.dropout = 0.25f;
  t.attention.dropout = 0.5f;
  t.block.activation_dropout = 0.375f;
  t.embedding.dropout = 0.0625f;
  t.attention.alibi_bias_max = 5;
  t.block.activation = Activation::relu;
  t.block.norm_eps = 0.01f;
  t.head.final_norm = false;
  t.attention.sliding_window = 9;
  for (const Position position : {Position::alibi, Position::rotary, Position::t5, Position::learned}) {
    t.position = position;
    t.attention.t5_buckets = position == Position::t5 ? 16 : 32;
    t.attention.t5_max_distance = position == Position::t5 ? 99 : 128;
    t.attention.t5_init = position == Position::t5 ? 0.25 : 0.02;
    t.attention.t5_rate_factor = position == Position::t5 ? 8 : TransformerConfig().attention.t5_rate_factor;
    t.attention.rotary_theta = position == Position::rotary ? 500 : 10000;
    t.embedding.max_length = position == Position::learned ? 33 : 0;
    t.attention.alibi_slopes =
        position == Position::alibi ? std::vector<float>{0.5f, 0.1f, 1, 2, 3e-5f, 1e-3f} : std::vector<float>();
    t.attention.slope_training = position == Position::alibi ? SlopeTraining::learned_random : SlopeTraining::fixed;
    const test::TemporaryFolder folder;
    LanguageModel(config, 1).save(folder.path());
    const LanguageModelConfig found = read_own_config(folder.path()).model;
    const TransformerConfig& f = found.transformer;
    EXPECT_EQ(found.vocab_size, 300);
    EXPECT_EQ(found.train_length, 77);
    EXPECT_EQ(found.transformer.embedding.scale, 3);
    ASSERT_TRUE(found.adaptive.has_value());
    EXPECT_EQ(found.adaptive->cutoffs, config.adaptive->cutoffs);
    EXPECT_EQ(found.adaptive->factor, 2);
    EXPECT_EQ(found.adaptive->dropout, 0.125f);
    EXPECT_EQ(std::tuple(f.layers, f.d_model, f.attention.heads, f.attention.kv_heads, f.ffn_dim()),
              std::tuple(1, 24, 6, 2, 60));
    EXPECT_EQ(std::tuple(f.block.dropout, f.attention.dropout, f.block.activation_dropout, f.embedding.dropout),
              std::tuple(0.25f, 0.5f, 0.375f, 0.0625f));
    EXPECT_EQ(std::tuple(f.position, f.attention.alibi_bias_max, f.block.activation, f.block.norm, f.block.norm_eps),
              std::tuple(position, 5.0, Activation::relu, Norm::layer_norm, 0.01f));
    EXPECT_EQ(std::tuple(f.attention.alibi_slopes, f.attention.slope_training),
              std::tuple(t.attention.alibi_slopes, t.attention.slope_training));
    EXPECT_EQ(std::tuple(f.attention.t5_buckets, f.attention.t5_max_distance, f.attention.rotary_theta,
                         f.embedding.max_length),
              std::tuple(t.attention.t5_buckets, t.attention.t5_max_distance, t.attention.rotary_theta,
                         t.embedding.max_length));
    EXPECT_EQ(std::tuple(f.attention.t5_init, f.attention.t5_rate_factor),
              std::tuple(t.attention.t5_init, t.attention.t5_rate_factor));
    EXPECT_EQ(std::tuple(f.block.bias, f.head.final_norm, f.attention.causal, f.attention.sliding_window),
              std::tuple(true, false, true, 9));
  }
}

}  // namespace
}  // namespace alibi::model
