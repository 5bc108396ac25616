// What a config.json means that leaves things out.
#include <gtest/gtest.h>

#include "model/mpt_folder.h"
#include "temporary_folder.h"

namespace alibi {
namespace {

constexpr const char* kLeast = R"({"model_type": "mpt", "d_model": 24, "n_heads": 4, "n_layers": 3, "vocab_size": 99,
                                   "max_seq_len": 512)";

LanguageModelConfig config_of(const std::string& more) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kLeast + more + "}");
  return read_mpt_config(folder.path());
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

}  // namespace
}  // namespace alibi
