// Baichuan-13B and Baichuan2-13B. The 7B models are rotary.
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

/// The second version divides the rows of the output matrix by their norms. Its files are recognized only by their
/// vocabulary, or by a key that the first version does not have.
bool is_baichuan2(const formats::JsonObject& json, int vocab_size) {
  return vocab_size == 125696 || json.has("z_loss_weight");
}

LanguageModelConfig baichuan_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  if (json.has("max_position_embeddings")) {
    in.refuse("max_position_embeddings",
              "no such key: this is a Baichuan-7B, whose rotary positions are not supported");
  }
  in.sizes(config, {"num_hidden_layers"}, {"hidden_size"}, {"num_attention_heads"});
  config.train_length = json.get_int_or("model_max_length", 0, 0, int64_t{1} << 40);
  in.refuse_unless("hidden_act", "silu", "another activation");
  t.block.activation = Activation::swiglu;
  t.block.expansion = in.expansion("intermediate_size", t.d_model);
  t.block.norm = Norm::rms_norm;
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "rms_norm_eps", 1e-6, 0));
  t.block.bias = false;
  t.block.dropout = 0;
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", false);
  t.head.normalized = is_baichuan2(json, config.vocab_size);
  return in.checked(config);
}

constexpr Mapping kBaichuanTensors[] = {
    {"wte", {"model.embed_tokens"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"model.norm"}},
    {"blocks.#.norm_1", {"model.layers.#.input_layernorm"}},
    {"blocks.#.attn.Wqkv", {"model.layers.#.self_attn.W_pack"}},
    {"blocks.#.attn.out_proj", {"model.layers.#.self_attn.o_proj"}},
    {"blocks.#.norm_2", {"model.layers.#.post_attention_layernorm"}},
    {"blocks.#.ffn.up_proj", {"model.layers.#.mlp.gate_proj", "model.layers.#.mlp.up_proj"}},
    {"blocks.#.ffn.down_proj", {"model.layers.#.mlp.down_proj"}}};

}  // namespace

constinit const Family kBaichuan = {.name = "baichuan",
                                    .folder = {.names = {"baichuan"},
                                               .config = baichuan_config,
                                               .mappings = kBaichuanTensors,
                                               .ignored = {"model.layers.#.self_attn.rotary_emb.inv_freq"}}};

}  // namespace alibi::model
