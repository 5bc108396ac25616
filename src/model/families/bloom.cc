// BLOOM of BigScience.
#include <algorithm>

#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

/// Values that BLOOM's files do not state, because all BLOOM models share them.
LanguageModelConfig usual_bloom() {
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.block.expansion = 4;
  t.block.activation = Activation::gelu_tanh;
  t.block.dropout = 0;
  t.embedding.norm = true;
  t.head.final_norm = true;
  return config;
}

LanguageModelConfig bloom_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config = usual_bloom();
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"n_layer", "num_hidden_layers"}, {"hidden_size", "n_embed", "n_embd"},
           {"n_head", "num_attention_heads"});
  config.train_length = json.get_int_or("seq_length", 0, 0, int64_t{1} << 40);
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_epsilon", 1e-5, 0));
  if (json.get_or<bool>("apply_residual_connection_post_layernorm", false)) t.block.residual = Residual::normed;
  t.block.dropout = in.rate("dropout", "hidden_dropout");
  t.attention.dropout = in.rate("attention_dropout", "attention_dropout");
  t.head.tied = json.get_or<bool>("tie_word_embeddings", true);
  return in.checked(config);
}

LanguageModelConfig bloom_gguf_config(const formats::JsonObject& metadata, const formats::WeightSource& weights) {
  ConfigReader in(metadata);
  LanguageModelConfig config = usual_bloom();
  TransformerConfig& t = config.transformer;
  in.gguf_sizes(config, "bloom");
  config.vocab_size = static_cast<int>(std::min<int64_t>(weights.info("token_embd.weight").shape.front(), INT32_MAX));
  t.block.norm_eps = static_cast<float>(in.number("norm_eps", "bloom.attention.layer_norm_epsilon", 0));
  t.head.tied = !weights.contains("output.weight");
  return in.checked(config);
}

}  // namespace

constexpr Mapping kBloomTensors[10] = {
    {"wte", {"transformer.word_embeddings"}},
    {"norm_e", {"transformer.word_embeddings_layernorm"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"transformer.ln_f"}},
    {"blocks.#.norm_1", {"transformer.h.#.input_layernorm"}},
    {"blocks.#.attn.Wqkv", {"transformer.h.#.self_attention.query_key_value"}, Arrangement::heads_interleaved},
    {"blocks.#.attn.out_proj", {"transformer.h.#.self_attention.dense"}},
    {"blocks.#.norm_2", {"transformer.h.#.post_attention_layernorm"}},
    {"blocks.#.ffn.up_proj", {"transformer.h.#.mlp.dense_h_to_4h"}},
    {"blocks.#.ffn.down_proj", {"transformer.h.#.mlp.dense_4h_to_h"}}};

constinit const Family kBloom = {.name = "bloom",
                                 .folder = {.names = {"bloom"},
                                            .config = bloom_config,
                                            .mappings = kBloomTensors,
                                            .tied_head = "lm_head.weight",
                                            .prefixes = {"transformer."}},
                                 .gguf = {.names = {"bloom"}, .config = bloom_gguf_config, .mappings = kGgufTensors}};

}  // namespace alibi::model
