// Falcon-RW of TII: the Falcon models that have ALiBi. Their bias is scaled with the scores.
#include <cmath>

#include "alibi/attention.h"
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

LanguageModelConfig falcon_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.layers = in.integer("layers", {"num_hidden_layers", "n_layer"});
  t.d_model = in.integer("d_model", {"hidden_size"});
  t.attention.heads = in.integer("heads", {"num_attention_heads", "n_head"});
  config.vocab_size = in.integer("vocab_size", {"vocab_size"});
  in.require("alibi", "Falcon models with rotary positions are not supported");
  in.refuse_unless("new_decoder_architecture", false, "Falcon's newer block");
  // If these keys are missing, transformers assumes true and the original code false.
  const bool is_original = json.get<std::string>("model_type") != "falcon";
  for (const char* key : {"parallel_attn", "multi_query"}) {
    if (json.get_or<bool>(key, !is_original)) in.refuse(key, "false: such a Falcon is not supported");
  }
  const std::string activation = json.get_or("activation", "gelu");
  if (activation != "gelu") in.refuse("activation", "gelu");
  config.train_length = json.get_int_or("max_position_embeddings", 0, 0, int64_t{1} << 40);
  t.block.expansion = 4;
  if (json.has("ffn_hidden_size")) {
    t.block.expansion = static_cast<double>(json.get_int("ffn_hidden_size", 1, int64_t{64} * t.d_model)) / t.d_model;
  }
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_epsilon", 1e-5, 0));
  t.block.bias = json.get_or<bool>("bias", false);
  t.block.norm_bias = NormBias::always;
  if (json.get_or<bool>("apply_residual_connection_post_layernorm", false)) t.block.residual = Residual::normed;
  t.block.dropout = in.rate("dropout", "hidden_dropout");
  t.attention.dropout = in.rate("attention_dropout", "attention_dropout");
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", true);
  config = in.checked(config);
  t.attention.alibi_slopes = slopes(t.attention.heads);
  for (float& slope : t.attention.alibi_slopes) slope /= std::sqrt(static_cast<float>(t.head_dim()));
  return config;
}

constexpr Mapping kFalconTensors[] = {
    {"wte", {"transformer.word_embeddings"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"transformer.ln_f"}},
    {"blocks.#.norm_1", {"transformer.h.#.input_layernorm"}},
    {"blocks.#.attn.Wqkv", {"transformer.h.#.self_attention.query_key_value"}, Arrangement::heads_interleaved},
    {"blocks.#.attn.out_proj", {"transformer.h.#.self_attention.dense"}},
    {"blocks.#.norm_2", {"transformer.h.#.post_attention_layernorm"}},
    {"blocks.#.ffn.up_proj", {"transformer.h.#.mlp.dense_h_to_4h"}},
    {"blocks.#.ffn.down_proj", {"transformer.h.#.mlp.dense_4h_to_h"}}};

}  // namespace

extern const Family kFalcon;
constinit const Family kFalcon = {.name = "falcon",
                                  .folder = {.names = {"falcon", "RefinedWebModel", "RefinedWeb"},
                                             .config = falcon_config,
                                             .mappings = kFalconTensors,
                                             .tied_head = "lm_head.weight",
                                             .prefix = "transformer."}};

}  // namespace alibi::model
