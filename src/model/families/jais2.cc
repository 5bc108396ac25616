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
  // Older files have the base beside the scaling, newer ones in one object.
  in.refuse_unless("rope_scaling", nullptr, "a scaling of the rotation");
  const formats::JsonObject rotation = json.object_or_empty("rope_parameters");
  ConfigReader in_rotation(rotation);
  in_rotation.refuse_unless("rope_type", "default", "a scaling of the rotation");
  in_rotation.refuse_unless("partial_rotary_factor", 1.0, "a rotation of a part of head_dim");
  ConfigReader& of_base = rotation.has("rope_theta") ? in_rotation : in;
  t.attention.rotary_theta = static_cast<float>(of_base.number_or("rotary_theta", "rope_theta", 10000, 0));
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

constinit const Family kJais2 = {
    .name = "jais2",
    .folder = {.names = {"jais2"}, .config = jais2_config, .mappings = kJais2Tensors, .tied_head = "lm_head.weight"}};

}  // namespace alibi::model
