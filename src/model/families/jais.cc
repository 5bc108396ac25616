// BTLM of Cerebras and Jais: GPT-2's layout with ALiBi, SwiGLU and the multipliers of muP, under two spellings.
#include <cmath>

#include "core/check.h"
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

constexpr const char* kSlopes = "transformer.relative_pe.slopes";

/// The scale of the scores; 0 selects 1 / sqrt(head_dim).
double jais_softmax_scale(const formats::JsonObject& json, int head_dim) {
  if (!json.get_or<bool>("scale_attn_weights", true)) return 1;
  if (json.get_or<bool>("mup_scale_qk_dot_by_d", json.get_or<bool>("scale_qk_dot_by_d", false))) return 1.0 / head_dim;
  return 0;
}

/// How the slopes are interpolated: an object of `type` and one of `factor` and `train_seq_len`, as the authors' code
/// requires. Empty if the key is missing.
formats::JsonObject jais_scaling(const formats::JsonObject& json) {
  formats::JsonObject scaling = json.object_or_empty("alibi_scaling");
  if (!json.has("alibi_scaling")) return scaling;
  if (!scaling.has("type") || scaling.has("factor") == scaling.has("train_seq_len") || scaling.size() != 2) {
    ConfigReader(json).refuse("alibi_scaling", "the keys type and one of factor and train_seq_len");
  }
  ConfigReader(scaling).refuse_unless("type", "linear", "another interpolation");
  return scaling;
}

/// The file contains the slopes. A fixed interpolation divides them.
std::vector<float> jais_slopes(const ConfigReader& in, const formats::WeightSource& weights, int heads) {
  Tensor stored = Tensor::empty(weights.info(kSlopes).shape);
  weights.load_finite_into(kSlopes, stored);
  std::vector<float> slopes = stored.to_floats();
  check(static_cast<int>(slopes.size()) == heads, "[model] {}: {} has {} elements, expected one for each of {} heads",
        weights.source_of(kSlopes), kSlopes, slopes.size(), heads);
  const formats::JsonObject scaling = jais_scaling(in.file());
  const double factor = ConfigReader(scaling).number_or("interpolation", "factor", 1, 0);
  for (float& slope : slopes) slope /= static_cast<float>(factor);
  return slopes;
}

LanguageModelConfig jais_config(const formats::JsonObject& json, const formats::WeightSource& weights) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"n_layer"}, {"n_embd"}, {"n_head"});
  if (json.get_or("position_embedding_type", "learned") != "alibi") in.refuse("position_embedding_type", "alibi");
  if (json.get_or("activation_function", "gelu") != "swiglu") in.refuse("activation_function", "swiglu");
  in.refuse_unless("scale_attn_by_inverse_layer_idx", false, "a scale for each layer");
  in.refuse_unless("add_cross_attention", false, "attention to another text");
  config.train_length = json.get_int_or("n_positions", 0, 0, int64_t{1} << 40);
  if (const formats::JsonObject scaling = jais_scaling(json); scaling.has("train_seq_len")) {
    config.train_length = scaling.get_int("train_seq_len", 1, int64_t{1} << 40);
  }
  t.block.activation = Activation::swiglu;
  t.block.expansion = 4;
  if (json.has("n_inner")) t.block.expansion = in.expansion("n_inner", t.d_model);
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_epsilon", 1e-5, 0));
  t.block.dropout = in.rate("dropout", "resid_pdrop");
  t.attention.dropout = in.rate("attention_dropout", "attn_pdrop");
  t.embedding.dropout = in.rate("embedding_dropout", "embd_pdrop");
  t.embedding.scale = static_cast<float>(in.number_or(
      "embedding_scale", json.has("embeddings_scale") ? "embeddings_scale" : "mup_embeddings_scale", 1, 0));
  t.head.logit_scale = json.has("width_scale") ? in.number("logit_scale", "width_scale", 0)
                                               : in.number_or("logit_scale", "mup_output_alpha", 1, 0) *
                                                     in.number_or("logit_scale", "mup_width_scale", 1, 0);
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", true);
  config = in.checked(config);
  t.attention.softmax_scale = jais_softmax_scale(json, t.head_dim());
  t.attention.alibi_slopes = jais_slopes(in, weights, t.attention.heads);
  return in.checked(config);
}

/// Without a factor, the slopes are divided by (keys / train_seq_len) if there are more keys than that.
Interpolation jais_interpolation(const formats::JsonObject& json) {
  const formats::JsonObject scaling = jais_scaling(json);
  if (!scaling.has("train_seq_len")) return {};
  return {.dynamic = true, .from = scaling.get_int("train_seq_len", 1, int64_t{1} << 40)};
}

constexpr Mapping kJaisTensors[] = {
    {"wte", {"transformer.wte"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"transformer.ln_f"}},
    {"blocks.#.norm_1", {"transformer.h.#.ln_1"}},
    {"blocks.#.attn.Wqkv", {"transformer.h.#.attn.c_attn"}, Arrangement::transposed},
    {"blocks.#.attn.out_proj", {"transformer.h.#.attn.c_proj"}, Arrangement::transposed},
    {"blocks.#.norm_2", {"transformer.h.#.ln_2"}},
    {"blocks.#.ffn.up_proj", {"transformer.h.#.mlp.c_fc2", "transformer.h.#.mlp.c_fc"}, Arrangement::transposed},
    {"blocks.#.ffn.down_proj", {"transformer.h.#.mlp.c_proj"}, Arrangement::transposed}};

}  // namespace

constinit const Family kJais = {
    .name = "jais",
    .folder = {.names = {"jais", "btlm"},
               .config = jais_config,
               .mappings = kJaisTensors,
               .tied_head = "lm_head.weight",
               .ignored = {kSlopes, "transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias"},
               .interpolation = jais_interpolation}};

}  // namespace alibi::model
