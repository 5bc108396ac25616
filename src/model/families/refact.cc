// Refact of Small Magellanic Cloud AI: one head of keys and values, SwiGLU, layer norms without bias.
#include <algorithm>

#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

/// Values that Refact's files do not state, because all Refact models share them.
LanguageModelConfig usual_refact() {
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.attention.kv_heads = 1;
  t.block.activation = Activation::swiglu;
  t.block.bias = false;
  t.block.dropout = 0;
  t.head.final_norm = true;
  t.head.tied = false;
  return config;
}

LanguageModelConfig refact_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config = usual_refact();
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"n_layer"}, {"n_embd"}, {"n_head"});
  in.refuse_unless("multi_query", true, "a Refact with several heads of keys and values");
  in.refuse_unless("scale_attn_weights", true, "attention without a scale");
  config.train_length = json.get_int_or("n_positions", 0, 0, int64_t{1} << 40);
  // The authors' code uses two thirds of 4 d_model, rounded up to a multiple of 256, and ignores n_inner.
  const int64_t hidden = (int64_t{8} * t.d_model / 3 + 255) / 256 * 256;
  t.block.expansion = static_cast<double>(hidden) / t.d_model;
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "layer_norm_epsilon", 1e-5, 0));
  t.block.dropout = in.rate("dropout", "resid_pdrop");
  t.attention.dropout = in.rate("attention_dropout", "attn_pdrop");
  t.embedding.dropout = in.rate("embedding_dropout", "embd_pdrop");
  return in.checked(config);
}

/// llama.cpp computes RMS norms and names the epsilon accordingly. The authors' models have layer norms.
LanguageModelConfig refact_gguf_config(const formats::JsonObject& metadata, const formats::WeightSource& weights) {
  ConfigReader in(metadata);
  LanguageModelConfig config = usual_refact();
  TransformerConfig& t = config.transformer;
  in.gguf_sizes(config, "refact");
  config.vocab_size = static_cast<int>(std::min<int64_t>(weights.info("token_embd.weight").shape.front(), INT32_MAX));
  t.block.expansion = in.expansion("refact.feed_forward_length", t.d_model);
  const char* eps = "refact.attention.layer_norm_rms_epsilon";
  t.block.norm_eps =
      static_cast<float>(in.number("norm_eps", metadata.has(eps) ? eps : "refact.attention.layer_norm_epsilon", 0));
  return in.checked(config);
}

constexpr Mapping kRefactGgufTensors[] = {{"wte", {"token_embd"}},
                                          {"lm_head", {"output"}},
                                          {"norm_f", {"output_norm"}},
                                          {"blocks.#.norm_1", {"blk.#.attn_norm"}},
                                          {"blocks.#.attn.Wqkv", {"blk.#.attn_q", "blk.#.attn_k", "blk.#.attn_v"}},
                                          {"blocks.#.attn.out_proj", {"blk.#.attn_output"}},
                                          {"blocks.#.norm_2", {"blk.#.ffn_norm"}},
                                          {"blocks.#.ffn.up_proj", {"blk.#.ffn_gate", "blk.#.ffn_up"}},
                                          {"blocks.#.ffn.down_proj", {"blk.#.ffn_down"}}};

constexpr Mapping kRefactTensors[] = {
    {"wte", {"transformer.wte"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"ln_f"}},
    {"blocks.#.norm_1", {"transformer.h.#.ln_1"}},
    {"blocks.#.attn.Wqkv", {"transformer.h.#.attn.q", "transformer.h.#.attn.k", "transformer.h.#.attn.v"}},
    {"blocks.#.attn.Wqkv", {"transformer.h.#.attn.q", "transformer.h.#.attn.kv"}},
    {"blocks.#.attn.out_proj", {"transformer.h.#.attn.c_proj"}},
    {"blocks.#.norm_2", {"transformer.h.#.ln_2"}},
    {"blocks.#.ffn.up_proj", {"transformer.h.#.mlp.linear_1", "transformer.h.#.mlp.linear_3"}},
    {"blocks.#.ffn.up_proj", {"transformer.h.#.mlp.gate_up_proj"}},
    {"blocks.#.ffn.down_proj", {"transformer.h.#.mlp.c_proj"}}};

}  // namespace

constinit const Family kRefact = {
    .name = "refact",
    .folder = {.names = {"gpt_refact"}, .config = refact_config, .mappings = kRefactTensors},
    .gguf = {.names = {"refact"}, .config = refact_gguf_config, .mappings = kRefactGgufTensors}};

}  // namespace alibi::model
