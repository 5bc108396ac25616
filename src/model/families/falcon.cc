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
  in.sizes(config, {"num_hidden_layers", "n_layer"}, {"hidden_size"}, {"num_attention_heads", "n_head"});
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
  if (json.has("ffn_hidden_size")) t.block.expansion = in.expansion("ffn_hidden_size", t.d_model);
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

}  // namespace

constinit const Family kFalcon = {.name = "falcon",
                                  .folder = {.names = {"falcon", "RefinedWebModel", "RefinedWeb"},
                                             .config = falcon_config,
                                             .mappings = kBloomTensors,
                                             .tied_head = "lm_head.weight",
                                             .prefixes = {"transformer."}}};

}  // namespace alibi::model
