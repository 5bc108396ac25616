// GTE encoders of Alibaba-NLP (gte-multilingual-base, gte-*-en-v1.5) and Snowflake's arctic-embed-m-v2.0: BERT's
// post-norm blocks with rotary positions and a gated feed-forward layer. The authors' code has the model type "new",
// transformers has "gte"; the tensors of both have the same names in files.
#include <cmath>

#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

/// The authors' code scales the rotation of all texts by NTK's rule: the base by the factor f, and then the frequencies
/// by f^(-2 / head_dim).
ConfigReader::Rotation gte_rotation(const formats::JsonObject& json) {
  ConfigReader in(json);
  const bool is_new = json.get<std::string>("model_type") == "new";
  if (!is_new || !json.has("rope_scaling")) return in.rotation(is_new ? 10000 : 160000);
  const formats::JsonObject scaling = json.object("rope_scaling");
  ConfigReader in_scaling(scaling);
  if (scaling.get_or("type", "") != "ntk") in_scaling.refuse("type", "ntk: another scaling is not supported");
  in_scaling.refuse_unless("mixed_b", nullptr, "mixed NTK scaling");
  const double factor = in_scaling.number("interpolation", "factor", 0);
  LanguageModelConfig sizes;
  in.sizes(sizes, {"num_hidden_layers"}, {"hidden_size"}, {"num_attention_heads"});
  return {in.number_or("rotary_theta", "rope_theta", 10000, 0) * factor,
          std::pow(factor, 2.0 / sizes.transformer.head_dim())};
}

LanguageModelConfig gte_config(const formats::JsonObject& json, const formats::WeightSource& weights) {
  ConfigReader in(json);
  LanguageModelConfig config = post_norm_encoder();
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"num_hidden_layers"}, {"hidden_size"}, {"num_attention_heads"});
  config.train_length = json.get_int_or("max_position_embeddings", 0, 0, int64_t{1} << 40);
  in.refuse_unless("hidden_act", "gelu", "an activation other than GELU");
  in.refuse_unless("position_embedding_type", "rope", "positions that are not rotary");
  in.refuse_unless("layer_norm_type", "layer_norm", "another norm");
  in.refuse_unless("logn_attention_scale", false, "a scale of scores by the length");
  t.position = Position::rotary;
  t.attention.rotary_theta = static_cast<float>(gte_rotation(json).theta);
  if (json.get_int_or("type_vocab_size", 1, 0, INT32_MAX) > 0) {
    t.embedding.token_types = in.integer("token_types", {"type_vocab_size"});
  }
  t.block.expansion = in.expansion("intermediate_size", t.d_model);
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_eps", 1e-12, 0));
  t.head.labels = rows_of_tensor(weights, "classifier.weight");
  return in.checked(config);
}

Interpolation gte_interpolation(const formats::JsonObject& json) { return {.factor = gte_rotation(json).factor}; }

constexpr Mapping kGteTensors[] = {
    {"wte", {"new.embeddings.word_embeddings"}},
    {"wtt", {"new.embeddings.token_type_embeddings"}},
    {"pooler", {"new.pooler.dense"}},
    {"classifier", {"classifier"}},
    {"norm_f", {"new.encoder.layer.#-1.mlp_ln"}},
    {"blocks.0.norm_1", {"new.embeddings.LayerNorm"}},
    {"blocks.#.norm_1", {"new.encoder.layer.#-1.mlp_ln"}},
    {"blocks.#.attn.Wqkv", {"new.encoder.layer.#.attention.qkv_proj"}},
    {"blocks.#.attn.out_proj", {"new.encoder.layer.#.attention.o_proj"}},
    {"blocks.#.norm_2", {"new.encoder.layer.#.attn_ln"}},
    {"blocks.#.ffn.up_proj", {"new.encoder.layer.#.mlp.up_gate_proj"}, Arrangement::halves_swapped},
    {"blocks.#.ffn.down_proj", {"new.encoder.layer.#.mlp.down_proj"}}};

}  // namespace

constinit const Family kGte = {.name = "gte",
                               .folder = {.names = {"gte", "new"},
                                          .config = gte_config,
                                          .mappings = kGteTensors,
                                          .ignored = {"lm_head.*", "new.pooler.*"},
                                          .prefixes = {"new.", "gte."},
                                          .interpolation = gte_interpolation}};

}  // namespace alibi::model
