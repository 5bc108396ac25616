// Replit-code v1: MPT with other names. Later revisions of the same models use MPT's tensor names.
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

LanguageModelConfig replit_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"n_layers"}, {"d_model"}, {"n_heads"});
  in.require("alibi", "Replit models with other positions are not supported");
  in.refuse_unless("prefix_lm", false, "prefix attention");
  in.refuse_unless("embedding_fraction", 1, "a gradient fraction");
  t.attention.alibi_bias_max = in.number_or("alibi_bias_max", "alibi_bias_max", 8, 0);
  t.attention.clip_qkv = in.number_or("clip_qkv", "attn_clip_qkv", 0, 0);
  t.attention.softmax_scale = in.number_or("softmax_scale", "softmax_scale", 0, 0);
  t.attention.qk_norm = json.get_or<bool>("attn_qk_ln", false);
  t.attention.dropout = in.rate("attention_dropout", "attn_pdrop");
  config.train_length = json.get_int_or("max_seq_len", 0, 0, int64_t{1} << 40);
  t.block.expansion = in.number_or("expansion", "mlp_ratio", 4, 0);
  t.block.bias = !json.get_or<bool>("no_bias", false);
  t.block.dropout = in.rate("dropout", "resid_pdrop");
  t.embedding.dropout = in.rate("embedding_dropout", "emb_pdrop");
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", true);
  t.head.logit_scale = in.logit_scale(t.d_model);
  return in.checked(config);
}

constexpr Mapping kReplitTensors[] = {{"wte", {"transformer.wte"}},
                                      {"lm_head", {"lm_head"}},
                                      {"norm_f", {"transformer.norm_f"}},
                                      {"norm_f", {"transformer.ln_f"}},
                                      {"blocks.#.norm_1", {"transformer.blocks.#.norm_1"}},
                                      {"blocks.#.norm_1", {"transformer.blocks.#.ln_1"}},
                                      {"blocks.#.attn.Wqkv", {"transformer.blocks.#.attn.Wqkv"}},
                                      {"blocks.#.attn.q_ln", {"transformer.blocks.#.attn.q_ln"}},
                                      {"blocks.#.attn.k_ln", {"transformer.blocks.#.attn.k_ln"}},
                                      {"blocks.#.attn.out_proj", {"transformer.blocks.#.attn.out_proj"}},
                                      {"blocks.#.norm_2", {"transformer.blocks.#.norm_2"}},
                                      {"blocks.#.norm_2", {"transformer.blocks.#.ln_2"}},
                                      {"blocks.#.ffn.up_proj", {"transformer.blocks.#.ffn.up_proj"}},
                                      {"blocks.#.ffn.up_proj", {"transformer.blocks.#.mlp.mlp_up"}},
                                      {"blocks.#.ffn.down_proj", {"transformer.blocks.#.ffn.down_proj"}},
                                      {"blocks.#.ffn.down_proj", {"transformer.blocks.#.mlp.mlp_down"}}};

}  // namespace

constinit const Family kReplit = {.name = "replit",
                                  .folder = {.names = {"replit_lm"},
                                             .config = replit_config,
                                             .mappings = kReplitTensors,
                                             .tied_head = "lm_head.weight",
                                             .prefixes = {"transformer."}}};

}  // namespace alibi::model
