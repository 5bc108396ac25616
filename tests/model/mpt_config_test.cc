// What a config.json means that leaves things out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "model/mpt_folder.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi {
namespace {

constexpr const char* kLeast = R"({"model_type": "mpt", "d_model": 24, "n_heads": 4, "n_layers": 3, "vocab_size": 99,
                                   "max_seq_len": 512)";

LanguageModelConfig config_of(const std::string& more) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kLeast + more + "}");
  return read_mpt_config(folder.path()).model;
}

TEST(MptConfig, DefaultsAreThoseOfMpt) {
  const LanguageModelConfig config = config_of("");
  const TransformerConfig& t = config.transformer;
  EXPECT_EQ(config.vocab_size, 99);
  EXPECT_EQ(config.train_length, 512);
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_FALSE(config.adaptive.has_value());
  EXPECT_EQ(t.layers, 3);
  EXPECT_EQ(t.d_model, 24);
  EXPECT_EQ(t.heads, 4);
  EXPECT_EQ(t.key_heads(), 4);
  EXPECT_EQ(t.ffn_dim(), 4 * 24);
  EXPECT_EQ(t.position, Position::learned);
  EXPECT_EQ(t.max_length, 512);
  EXPECT_EQ(t.activation, Activation::gelu);
  EXPECT_EQ(t.norm, Norm::layer_norm);
  EXPECT_EQ(t.norm_eps, 1e-5f);
  EXPECT_EQ(t.alibi_bias_max, 8);
  EXPECT_TRUE(t.final_norm);
  EXPECT_TRUE(t.causal);
  EXPECT_FALSE(t.bias);
  for (const float dropout : {t.dropout, t.attention_dropout, t.activation_dropout, t.embedding_dropout}) {
    EXPECT_EQ(dropout, 0);
  }
}

TEST(MptConfig, WhatIsGivenIsTaken) {
  const auto transformer = [](const std::string& more) { return config_of(more).transformer; };
  EXPECT_EQ(transformer(R"(, "expansion_ratio": 2)").ffn_dim(), 48);
  EXPECT_EQ(transformer(R"(, "expansion_ratio": 2, "ffn_config": {"ffn_hidden_size": 37})").ffn_dim(), 37);
  EXPECT_EQ(transformer(R"(, "attn_config": {"attn_type": "multiquery_attention"})").key_heads(), 1);
  EXPECT_EQ(transformer(R"(, "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2})").key_heads(),
            2);
  EXPECT_EQ(transformer(R"(, "attn_config": {"alibi": true})").position, Position::alibi);
  EXPECT_EQ(transformer(R"(, "learned_pos_emb": false)").position, Position::none);
  EXPECT_EQ(transformer(R"(, "norm_type": "rmsnorm")").norm, Norm::rms_norm);
  EXPECT_EQ(transformer(R"(, "norm_eps": 0.5)").norm_eps, 0.5f);
  EXPECT_EQ(transformer(R"(, "emb_pdrop": 0.5)").embedding_dropout, 0.5f);
  EXPECT_EQ(transformer(R"(, "resid_pdrop": 0.5)").dropout, 0.5f);
  EXPECT_EQ(transformer(R"(, "attn_config": {"attn_pdrop": 0.5})").attention_dropout, 0.5f);
  EXPECT_TRUE(transformer(R"(, "no_bias": false)").bias);
  EXPECT_EQ(transformer(R"(, "ffn_config": {"ffn_act_fn": {"name": "relu"}})").activation, Activation::relu);
  EXPECT_EQ(transformer(R"(, "ffn_config": {"ffn_act_fn": {"name": "gelu", "approximate": "tanh"}})").activation,
            Activation::gelu_tanh);
}

TEST(MptConfig, WhatWouldChangeTheResultIsRefusedByName) {
  const auto refused = [](const std::string& more, const char* key) {
    const std::string message = test::message_of([&] { config_of(more); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("not supported"), std::string::npos) << message;
  };
  for (const char* key : {"clip_qkv", "qk_ln", "qk_gn", "prefix_lm", "attn_logit_softcapping", "softmax_scale"}) {
    refused(fmt::format(R"(, "attn_config": {{"{}": true}})", key), key);
    EXPECT_NO_THROW(config_of(fmt::format(R"(, "attn_config": {{"{}": null}})", key)));
    EXPECT_NO_THROW(config_of(fmt::format(R"(, "attn_config": {{"{}": false}})", key)));
  }
  refused(R"(, "attn_config": {"sliding_window_size": 7})", "sliding_window_size");
  refused(R"(, "attn_config": {"fused_qkv": false})", "fused_qkv");
  refused(R"(, "attn_config": {"rope": true})", "rope");
  for (const char* key : {"logit_scale", "final_logit_softcapping", "block_overrides"}) {
    refused(fmt::format(R"(, "{}": 2)", key), key);
  }
  refused(R"(, "tie_word_embeddings": false)", "tie_word_embeddings");
  const auto contradicts = [](const char* uses_alibi, const char* position) {
    const std::string config =
        fmt::format(R"(, "attn_config": {{"alibi": {}}}, "alibi": {{"position": "{}"}})", uses_alibi, position);
    EXPECT_NE(test::message_of([&] { config_of(config); }).find("position is '"), std::string::npos) << config;
  };
  contradicts("true", "rotary");
  contradicts("false", "alibi");
  refused(R"(, "embedding_fraction": 0.5)", "embedding_fraction");
}

TEST(MptConfig, EveryFieldIsReadAsItWasWritten) {
  LanguageModelConfig config;
  config.vocab_size = 300;
  config.train_length = 77;
  config.embedding_scale = 3;
  config.adaptive = AdaptiveConfig{.cutoffs = {100, 200}, .factor = 2, .dropout = 0.125f};
  TransformerConfig& t = config.transformer;
  t.layers = 1;
  t.d_model = 24;
  t.heads = 6;
  t.kv_heads = 2;
  t.expansion = 2.5;
  t.dropout = 0.25f;
  t.attention_dropout = 0.5f;
  t.activation_dropout = 0.375f;
  t.embedding_dropout = 0.0625f;
  t.alibi_bias_max = 5;
  t.activation = Activation::relu;
  t.norm_eps = 0.01f;
  t.final_norm = false;
  for (const Position position : {Position::alibi, Position::rotary, Position::t5, Position::learned}) {
    t.position = position;
    t.t5_buckets = position == Position::t5 ? 16 : 32;
    t.t5_max_distance = position == Position::t5 ? 99 : 128;
    t.rotary_theta = position == Position::rotary ? 500 : 10000;
    t.max_length = position == Position::learned ? 33 : 0;
    const test::TemporaryFolder folder;
    LanguageModel(config, 1).save(folder.path());
    const LanguageModelConfig found = read_mpt_config(folder.path()).model;
    const TransformerConfig& f = found.transformer;
    EXPECT_EQ(found.vocab_size, 300);
    EXPECT_EQ(found.train_length, 77);
    EXPECT_EQ(found.embedding_scale, 3);
    ASSERT_TRUE(found.adaptive.has_value());
    EXPECT_EQ(found.adaptive->cutoffs, config.adaptive->cutoffs);
    EXPECT_EQ(found.adaptive->factor, 2);
    EXPECT_EQ(found.adaptive->dropout, 0.125f);
    EXPECT_EQ(std::tuple(f.layers, f.d_model, f.heads, f.kv_heads, f.ffn_dim()), std::tuple(1, 24, 6, 2, 60));
    EXPECT_EQ(std::tuple(f.dropout, f.attention_dropout, f.activation_dropout, f.embedding_dropout),
              std::tuple(0.25f, 0.5f, 0.375f, 0.0625f));
    EXPECT_EQ(std::tuple(f.position, f.alibi_bias_max, f.activation, f.norm, f.norm_eps),
              std::tuple(position, 5.0, Activation::relu, Norm::layer_norm, 0.01f));
    EXPECT_EQ(std::tuple(f.t5_buckets, f.t5_max_distance, f.rotary_theta, f.max_length),
              std::tuple(t.t5_buckets, t.t5_max_distance, t.rotary_theta, t.max_length));
    EXPECT_EQ(std::tuple(f.bias, f.final_norm, f.causal), std::tuple(true, false, true));
  }
}

}  // namespace
}  // namespace alibi
