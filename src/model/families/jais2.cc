// Jais-2 of Inception: Llama's layout with rotary positions, layer norms, biases and squared ReLU.
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

LanguageModelConfig jais2_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"num_hidden_layers"}, {"hidden_size"}, {"num_attention_heads"}, "num_key_value_heads");
  config.train_length = json.get_int_or("max_position_embeddings", 0, 0, int64_t{1} << 40);
  in.refuse_unless("hidden_act", "relu2", "another activation");
  t.position = Position::rotary;
  t.attention.rotary_theta = static_cast<float>(in.rotation(10000).theta);
  t.attention.dropout = in.rate("attention_dropout", "attention_dropout");
  t.block.dropout = 0;
  t.block.expansion = in.expansion("intermediate_size", t.d_model);
  in.found("expansion", "intermediate_size");
  t.block.activation = Activation::relu2;
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_eps", 1e-5, 0));
  t.block.norm_bias = NormBias::always;
  t.block.bias = json.get_or<bool>("attention_bias", true);
  in.refuse_unless("mlp_bias", t.block.bias, "biases in attention or in the feed-forward layers alone");
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", false);
  config = in.checked(config);
  in.refuse_unless("head_dim", t.head_dim(), "a head_dim other than hidden_size / num_attention_heads");
  return config;
}

Interpolation jais2_interpolation(const formats::JsonObject& json) {
  return {.factor = ConfigReader(json).rotation(10000).factor};
}

constexpr Mapping kJais2Tensors[] = {
    {"wte", {"model.embed_tokens"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"model.norm"}},
    {"blocks.#.norm_1", {"model.layers.#.input_layernorm"}},
    {"blocks.#.attn.Wqkv",
     {"model.layers.#.self_attn.q_proj", "model.layers.#.self_attn.k_proj", "model.layers.#.self_attn.v_proj"}},
    {"blocks.#.attn.out_proj", {"model.layers.#.self_attn.o_proj"}},
    {"blocks.#.norm_2", {"model.layers.#.post_attention_layernorm"}},
    {"blocks.#.ffn.up_proj", {"model.layers.#.mlp.up_proj"}},
    {"blocks.#.ffn.down_proj", {"model.layers.#.mlp.down_proj"}}};

}  // namespace

constinit const Family kJais2 = {.name = "jais2",
                                 .folder = {.names = {"jais2"},
                                            .config = jais2_config,
                                            .mappings = kJais2Tensors,
                                            .tied_head = "lm_head.weight",
                                            .interpolation = jais2_interpolation}};

}  // namespace alibi::model
