// BERT encoders with ALiBi: jina-bert-v2 and its code models, jina-reranker-v1, MosaicBERT and DNABERT-2. All have
// norms after the residual connections (post-norm): the norm after a block is the first norm of the next one here.
#include <algorithm>

#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {

LanguageModelConfig post_norm_encoder() {
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.attention.causal = false;
  t.block.activation = Activation::geglu;
  t.block.up_bias = false;
  t.block.residual = Residual::normed;
  t.block.dropout = 0;
  t.head.final_norm = true;
  t.head.predicts = false;
  return config;
}

int rows_of_tensor(const formats::WeightSource& weights, const std::string& name) {
  for (const std::string& found : {name, "bert." + name}) {
    if (!weights.contains(found) || weights.info(found).shape.empty()) continue;
    return static_cast<int>(std::min<int64_t>(weights.info(found).shape.front(), INT32_MAX));
  }
  return 0;
}

namespace {

LanguageModelConfig bert_config(const formats::JsonObject& json, const formats::WeightSource& weights) {
  ConfigReader in(json);
  // MosaicBERT and DNABERT-2 say "absolute", which means nothing.
  const bool is_mosaic = json.has("alibi_starting_size");
  if (!is_mosaic) in.refuse_unless("position_embedding_type", "alibi", "a BERT whose positions are not ALiBi");
  if (!is_mosaic && !json.has("position_embedding_type")) {
    in.refuse("position_embedding_type", "alibi: a BERT with other positions is not supported");
  }
  LanguageModelConfig config = post_norm_encoder();
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"num_hidden_layers"}, {"hidden_size"}, {"num_attention_heads"});
  t.embedding.token_types = in.integer("token_types", {"type_vocab_size"});
  t.block.expansion = in.expansion("intermediate_size", t.d_model);
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_eps", 1e-12, 0));
  t.block.dropout = in.rate("dropout", "hidden_dropout_prob");
  t.attention.dropout = in.rate("attention_dropout", "attention_probs_dropout_prob");
  in.refuse_unless("hidden_act", "gelu", "an activation other than GELU");
  if (is_mosaic) {
    config.train_length = json.get_int_or("alibi_starting_size", 0, 0, int64_t{1} << 40);
  } else {
    config.train_length = json.get_int_or("max_position_embeddings", 0, 0, int64_t{1} << 40);
    const auto kind = json.get_or<std::string>("feed_forward_type", "original");
    if (kind == "original") {
      t.block.activation = Activation::gelu;
    } else if (kind == "reglu") {
      t.block.activation = Activation::reglu;
    } else if (kind != "geglu") {
      in.refuse("feed_forward_type", "geglu, reglu or original");
    }
  }
  const std::string first = "encoder.layer.0.";
  t.attention.qk_norm = rows_of_tensor(weights, first + "attention.self.layer_norm_q.weight") > 0;
  t.block.normed_attention = rows_of_tensor(weights, first + "layer_norm_1.weight") > 0;
  t.block.up_bias = rows_of_tensor(weights, first + "mlp.up_layer.bias") > 0;
  t.head.labels = rows_of_tensor(weights, "classifier.weight");
  return in.checked(config);
}

constexpr Mapping kBertTensors[] = {
    {"wte", {"bert.embeddings.word_embeddings"}},
    {"wtt", {"bert.embeddings.token_type_embeddings"}},
    {"pooler", {"bert.pooler.dense"}},
    {"classifier", {"classifier"}},
    {"norm_f", {"bert.encoder.layer.#-1.layer_norm_2"}},
    {"norm_f", {"bert.encoder.layer.#-1.mlp.layernorm"}},
    {"blocks.0.norm_1", {"bert.embeddings.LayerNorm"}},
    {"blocks.#.norm_1", {"bert.encoder.layer.#-1.layer_norm_2"}},
    {"blocks.#.norm_1", {"bert.encoder.layer.#-1.mlp.layernorm"}},
    {"blocks.#.attn.Wqkv", {"bert.encoder.layer.#.attention.self.Wqkv"}},
    {"blocks.#.attn.Wqkv",
     {"bert.encoder.layer.#.attention.self.query", "bert.encoder.layer.#.attention.self.key",
      "bert.encoder.layer.#.attention.self.value"}},
    {"blocks.#.attn.q_ln", {"bert.encoder.layer.#.attention.self.layer_norm_q"}},
    {"blocks.#.attn.k_ln", {"bert.encoder.layer.#.attention.self.layer_norm_k"}},
    {"blocks.#.attn.out_proj", {"bert.encoder.layer.#.attention.output.dense"}},
    {"blocks.#.attn.norm", {"bert.encoder.layer.#.attention.output.LayerNorm"}},
    {"blocks.#.norm_2", {"bert.encoder.layer.#.layer_norm_1"}},
    {"blocks.#.norm_2", {"bert.encoder.layer.#.attention.output.LayerNorm"}},
    {"blocks.#.ffn.up_proj", {"bert.encoder.layer.#.mlp.up_gated_layer"}, Arrangement::halves_swapped},
    {"blocks.#.ffn.up_proj", {"bert.encoder.layer.#.mlp.up_layer"}},
    {"blocks.#.ffn.up_proj", {"bert.encoder.layer.#.mlp.gated_layers"}},
    {"blocks.#.ffn.down_proj", {"bert.encoder.layer.#.mlp.down_layer"}},
    {"blocks.#.ffn.down_proj", {"bert.encoder.layer.#.mlp.wo"}}};

/// llama.cpp converts jina-bert-v2 only. Newer files join gate and values in ffn_up, the gate first.
LanguageModelConfig bert_gguf_config(const formats::JsonObject& metadata, const formats::WeightSource& weights) {
  ConfigReader in(metadata);
  LanguageModelConfig config = post_norm_encoder();
  TransformerConfig& t = config.transformer;
  in.gguf_sizes(config, "jina-bert-v2");
  config.vocab_size = rows_of_tensor(weights, "token_embd.weight");
  t.embedding.token_types = rows_of_tensor(weights, "token_types.weight");
  const int64_t hidden = metadata.get_int("jina-bert-v2.feed_forward_length", 1, int64_t{64} * t.d_model);
  t.block.expansion = static_cast<double>(hidden) / t.d_model;
  t.block.norm_eps = static_cast<float>(in.number("norm_eps", "jina-bert-v2.attention.layer_norm_epsilon", 0));
  const bool is_gated =
      weights.contains("blk.0.ffn_gate.weight") || rows_of_tensor(weights, "blk.0.ffn_up.weight") == 2 * hidden;
  t.block.activation = is_gated ? Activation::geglu : Activation::gelu;
  t.attention.qk_norm = weights.contains("blk.0.attn_q_norm.weight");
  t.block.normed_attention = weights.contains("blk.0.attn_norm_2.weight");
  t.block.up_bias = weights.contains("blk.0.ffn_up.bias");
  return in.checked(config);
}

constexpr Mapping kBertGgufTensors[] = {{"wte", {"token_embd"}},
                                        {"wtt", {"token_types"}},
                                        {"norm_f", {"blk.#-1.layer_output_norm"}},
                                        {"blocks.0.norm_1", {"token_embd_norm"}},
                                        {"blocks.#.norm_1", {"blk.#-1.layer_output_norm"}},
                                        {"blocks.#.attn.Wqkv", {"blk.#.attn_q", "blk.#.attn_k", "blk.#.attn_v"}},
                                        {"blocks.#.attn.q_ln", {"blk.#.attn_q_norm"}},
                                        {"blocks.#.attn.k_ln", {"blk.#.attn_k_norm"}},
                                        {"blocks.#.attn.out_proj", {"blk.#.attn_output"}},
                                        {"blocks.#.attn.norm", {"blk.#.attn_output_norm"}},
                                        {"blocks.#.norm_2", {"blk.#.attn_norm_2"}},
                                        {"blocks.#.norm_2", {"blk.#.attn_output_norm"}},
                                        {"blocks.#.ffn.up_proj", {"blk.#.ffn_gate", "blk.#.ffn_up"}},
                                        {"blocks.#.ffn.up_proj", {"blk.#.ffn_up"}},
                                        {"blocks.#.ffn.down_proj", {"blk.#.ffn_down"}}};

}  // namespace

constinit const Family kBert = {
    .name = "bert",
    .folder = {.names = {"bert"},
               .config = bert_config,
               .mappings = kBertTensors,
               .ignored = {"cls.*", "bert.pooler.*", "bert.embeddings.position_ids"},
               .prefixes = {"bert."}},
    .gguf = {.names = {"jina-bert-v2"}, .config = bert_gguf_config, .mappings = kBertGgufTensors}};

}  // namespace alibi::model
