// MPT of MosaicML (llm-foundry), as its own code defines it: transformers ignores some of these keys.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "alibi/model_options.h"
#include "formats/options.h"
#include "model/config_fields.h"
#include "model/families/config_reader.h"
#include "model/families/family.h"
#include "model/own_config.h"

namespace alibi::model {
namespace {

Activation mpt_activation(const formats::JsonObject& ffn, bool gated) {
  ConfigReader in(ffn);
  const formats::JsonObject function = ffn.object_or_empty("ffn_act_fn");
  const std::string name = function.get_or("name", "gelu"), approximate = function.get_or("approximate", "none");
  if (gated && (name == "silu" || name == "gelu") && approximate == "none") {
    return name == "silu" ? Activation::swiglu : Activation::geglu;
  }
  if (!gated && name == "relu") return Activation::relu;
  if (!gated && name == "gelu" && (approximate == "none" || approximate == "tanh")) {
    return approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  }
  in.refuse("ffn_act_fn", gated ? "silu or gelu" : "gelu (also with approximate tanh) or relu");
}

Norm mpt_norm(const ConfigReader& in) {
  std::string name = in.file().get_or("norm_type", "low_precision_layernorm");
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "layernorm" || name == "low_precision_layernorm") return Norm::layer_norm;
  if (name == "rmsnorm" || name == "low_precision_rmsnorm") return Norm::rms_norm;
  in.refuse("norm_type", "layernorm, low_precision_layernorm, rmsnorm or low_precision_rmsnorm");
}

void read_attention(const formats::JsonObject& json, AttentionConfig& attention) {
  ConfigReader in(json);
  in.refuse_unless("rope", false, "a rotary MPT");
  in.require("alibi", "MPT models with other positions are not supported");
  in.refuse_unless("prefix_lm", false, "prefix attention");
  in.refuse_unless("qk_gn", false, "a norm of each head's queries and keys");
  in.refuse_unless("attn_logit_softcapping", nullptr, "soft capping");
  in.refuse_unless("sliding_window_size", -1, "MPT's window");
  in.refuse_unless("fused_qkv", true, "a layout with separate projections");
  const std::string kind = json.get_or("attn_type", "multihead_attention");
  if (kind == "multiquery_attention") {
    attention.kv_heads = 1;
  } else if (kind == "grouped_query_attention") {
    attention.kv_heads = static_cast<int>(json.get_int("kv_n_heads", 1, attention.heads));
    if (attention.heads % attention.kv_heads != 0) in.refuse("kv_n_heads", "a divisor of n_heads");
  } else if (kind != "multihead_attention") {
    in.refuse("attn_type", "multihead_attention, multiquery_attention or grouped_query_attention");
  }
  attention.alibi_bias_max = in.number_or("alibi_bias_max", "alibi_bias_max", 8, 0);
  attention.softmax_scale = in.number_or("softmax_scale", "softmax_scale", 0, 0);
  attention.clip_qkv = in.number_or("clip_qkv", "clip_qkv", 0, 0);
  attention.qk_norm = json.get_or<bool>("qk_ln", false);
  attention.dropout = in.rate("attention_dropout", "attn_pdrop");
}

LanguageModelConfig mpt_config(const formats::JsonObject& json, const formats::WeightSource&) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"n_layers"}, {"d_model"}, {"n_heads"});
  config.train_length = json.get_int_or("max_seq_len", 0, 0, int64_t{1} << 40);
  for (const char* key : {"final_logit_softcapping", "block_overrides"}) {
    in.refuse_unless(key, nullptr, "a model with this key");
  }
  in.refuse_unless("embedding_fraction", 1, "a gradient fraction");
  read_attention(json.object_or_empty("attn_config"), t.attention);

  const formats::JsonObject ffn = json.object_or_empty("ffn_config");
  const std::string type = ffn.get_or("ffn_type", "mptmlp");
  if (type != "mptmlp" && type != "mptglu") ConfigReader(ffn).refuse("ffn_type", "mptmlp or mptglu");
  t.block.activation = mpt_activation(ffn, type == "mptglu");
  t.block.expansion = in.number_or("expansion", "expansion_ratio", 4, 0);
  if (ffn.has("ffn_hidden_size")) t.block.expansion = ConfigReader(ffn).expansion("ffn_hidden_size", t.d_model);
  t.block.norm = mpt_norm(in);
  const char* eps = json.has("norm_eps") ? "norm_eps" : "layer_norm_epsilon";
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", eps, 1e-5, 0));
  t.block.bias = !json.get_or<bool>("no_bias", true);
  t.block.dropout = in.rate("dropout", "resid_pdrop");
  t.embedding.dropout = in.rate("embedding_dropout", "emb_pdrop");
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", true);
  t.head.logit_scale = in.logit_scale(t.d_model);
  return in.checked(config);
}

/// GGUF keys begin with the name of the architecture: "mpt.block_count".
LanguageModelConfig mpt_gguf_config(const formats::JsonObject& metadata, const formats::WeightSource& weights) {
  ConfigReader in(metadata);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.gguf_sizes(config, "mpt", "mpt.attention.head_count_kv");
  config.vocab_size = static_cast<int>(std::min<int64_t>(weights.info("token_embd.weight").shape.front(), INT32_MAX));
  t.attention.alibi_bias_max = in.number("alibi_bias_max", "mpt.attention.max_alibi_bias", 0);
  t.attention.clip_qkv = in.number_or("clip_qkv", "mpt.attention.clamp_kqv", 0);
  t.attention.qk_norm = weights.contains("blk.0.attn_q_norm.weight");
  t.block.expansion = in.expansion("mpt.feed_forward_length", t.d_model);
  t.block.norm_eps = static_cast<float>(in.number("norm_eps", "mpt.attention.layer_norm_epsilon", 0));
  t.block.bias = weights.contains("blk.0.attn_qkv.bias");
  t.head.final_norm = true;
  t.head.tied = !weights.contains("output.weight");
  t.block.dropout = 0;
  return in.checked(config);
}

/// What transformers' MPT would refuse in a model of ours, or compute differently.
std::vector<std::string> mpt_differences(const LanguageModelConfig& config) {
  const TransformerConfig& t = config.transformer;
  std::vector<std::string> found;
  const auto expect = [&](bool same, const std::string& difference) {
    if (!same) found.push_back(difference);
  };
  expect(t.position == Position::alibi, fmt::format("position {}", name_of(t.position)));
  expect(t.position != Position::alibi || t.attention.alibi_bias_max == 8,
         fmt::format("alibi_bias_max {}", t.attention.alibi_bias_max));
  for (const ConfigField* field : unusual_fields(config)) {
    if (field->more.training_only || !field->belongs_to(Position::alibi)) continue;
    found.push_back(fmt::format("{} {}", field->name, formats::short_text_of(field->get(config))));
  }
  expect(t.block.activation == Activation::gelu, fmt::format("activation {}", name_of(t.block.activation)));
  expect(t.block.norm == Norm::layer_norm, fmt::format("norm {}", name_of(t.block.norm)));
  expect(!t.block.bias, "biases");
  expect(t.key_heads() == t.attention.heads, fmt::format("{} kv_heads for {} heads", t.key_heads(), t.attention.heads));
  expect(t.ffn_dim() == 4 * t.d_model, fmt::format("ffn_dim {} for d_model {}", t.ffn_dim(), t.d_model));
  expect(!config.adaptive, "adaptive vocabulary");
  return found;
}

/// The keys that transformers reads. Some may be integers only.
void describe_mpt(const LanguageModelConfig& config, formats::OrderedJson& json) {
  // Other programs refuse longer texts, and some make a bias of that length in each pass; ALiBi itself has no limit.
  // The longest of MPT's own models was trained at this length.
  constexpr int64_t length_for_others = 65536;
  const TransformerConfig& t = config.transformer;
  json["architectures"] = {"MPTForCausalLM"};
  json["model_type"] = "mpt";
  json["d_model"] = t.d_model;
  json["n_heads"] = t.attention.heads;
  json["n_layers"] = t.layers;
  json["expansion_ratio"] = 4;
  json["vocab_size"] = config.vocab_size;
  json["max_seq_len"] = std::max(config.train_length, length_for_others);
  json["no_bias"] = true;
  json["norm_type"] = "layernorm";
  json["norm_eps"] = t.block.norm_eps;  // MPT's own code reads this one, transformers' the next
  json["layer_norm_epsilon"] = t.block.norm_eps;
  json["learned_pos_emb"] = false;
  json["emb_pdrop"] = t.embedding.dropout;
  json["resid_pdrop"] = t.block.dropout;
  json["logit_scale"] = nullptr;
  json["tie_word_embeddings"] = t.head.tied;
  json["use_cache"] = false;
  json["torch_dtype"] = "float32";
  json["attn_config"] = {{"alibi", true},
                         {"alibi_bias_max", 8},
                         {"attn_impl", "torch"},
                         {"attn_pdrop", 0},
                         {"attn_type", "multihead_attention"},
                         {"attn_uses_sequence_id", false},
                         {"clip_qkv", nullptr},
                         {"prefix_lm", false},
                         {"qk_ln", false},
                         {"softmax_scale", nullptr}};
  json["ffn_config"] = {{"ffn_type", "mptmlp"}, {"ffn_hidden_size", t.ffn_dim()}};
}

/// What the metadata and the tensors of a GGUF file say, and llama.cpp, which the format belongs to, computes. Every
/// other field must have its usual value.
constexpr std::string_view kMptGgufFields[] = {"layers",     "d_model",  "heads",         "kv_heads",   "expansion",
                                               "activation", "norm_eps", "bias",          "vocab_size", "train_length",
                                               "tied",       "clip_qkv", "alibi_bias_max"};

std::vector<std::string> mpt_gguf_differences(const LanguageModelConfig& config) {
  LanguageModelConfig usual;
  usual.transformer.head.final_norm = true;
  std::vector<std::string> found;
  for (const ConfigField& field : config_fields()) {
    const bool matters = !field.more.training_only && field.more.json != nullptr && field.belongs_to(Position::alibi);
    const bool is_said =
        std::find(std::begin(kMptGgufFields), std::end(kMptGgufFields), field.name) != std::end(kMptGgufFields);
    if (matters && !is_said && field.get(config) != field.get(usual)) found.emplace_back(field.name);
  }
  const Activation activation = config.transformer.block.activation;
  if (activation != Activation::gelu && activation != Activation::gelu_tanh) found.emplace_back("activation");
  if (config.adaptive) found.emplace_back("adaptive vocabulary");
  return found;
}

void write_mpt_gguf(const LanguageModelConfig& config, formats::GgufWriter& file) {
  const TransformerConfig& t = config.transformer;
  file.text("general.architecture", "mpt");
  file.integer("mpt.context_length", static_cast<uint32_t>(std::clamp<int64_t>(config.train_length, 1, INT32_MAX)));
  file.integer("mpt.embedding_length", static_cast<uint32_t>(t.d_model));
  file.integer("mpt.block_count", static_cast<uint32_t>(t.layers));
  file.integer("mpt.feed_forward_length", static_cast<uint32_t>(t.ffn_dim()));
  file.integer("mpt.attention.head_count", static_cast<uint32_t>(t.attention.heads));
  if (t.key_heads() != t.attention.heads) {
    file.integer("mpt.attention.head_count_kv", static_cast<uint32_t>(t.key_heads()));
  }
  file.number("mpt.attention.layer_norm_epsilon", t.block.norm_eps);
  file.number("mpt.attention.max_alibi_bias", static_cast<float>(t.attention.alibi_bias_max));
  if (t.attention.clip_qkv > 0) {
    file.number("mpt.attention.clamp_kqv", static_cast<float>(t.attention.clip_qkv));
  }
}

constexpr Mapping kMptTensors[] = {
    {"wte", {"transformer.wte"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"transformer.norm_f"}},
    {"blocks.#.norm_1", {"transformer.blocks.#.norm_1"}},
    {"blocks.#.attn.Wqkv", {"transformer.blocks.#.attn.Wqkv"}},
    {"blocks.#.attn.q_ln", {"transformer.blocks.#.attn.q_ln"}},
    {"blocks.#.attn.k_ln", {"transformer.blocks.#.attn.k_ln"}},
    {"blocks.#.attn.out_proj", {"transformer.blocks.#.attn.out_proj"}},
    {"blocks.#.norm_2", {"transformer.blocks.#.norm_2"}},
    {"blocks.#.ffn.up_proj", {"transformer.blocks.#.ffn.gate_proj", "transformer.blocks.#.ffn.up_proj"}},
    {"blocks.#.ffn.up_proj", {"transformer.blocks.#.ffn.up_proj"}},
    {"blocks.#.ffn.down_proj", {"transformer.blocks.#.ffn.down_proj"}}};

}  // namespace

constexpr Mapping kGgufTensors[12] = {{"wte", {"token_embd"}},
                                      {"norm_e", {"token_embd_norm"}},
                                      {"lm_head", {"output"}},
                                      {"norm_f", {"output_norm"}},
                                      {"blocks.#.norm_1", {"blk.#.attn_norm"}},
                                      {"blocks.#.attn.Wqkv", {"blk.#.attn_qkv"}},
                                      {"blocks.#.attn.q_ln", {"blk.#.attn_q_norm"}},
                                      {"blocks.#.attn.k_ln", {"blk.#.attn_k_norm"}},
                                      {"blocks.#.attn.out_proj", {"blk.#.attn_output"}},
                                      {"blocks.#.norm_2", {"blk.#.ffn_norm"}},
                                      {"blocks.#.ffn.up_proj", {"blk.#.ffn_up"}},
                                      {"blocks.#.ffn.down_proj", {"blk.#.ffn_down"}}};

constinit const Family kMpt = {.name = "mpt",
                               .folder = {.names = {"mpt"},
                                          .config = mpt_config,
                                          .mappings = kMptTensors,
                                          .tied_head = "lm_head.weight",
                                          .prefixes = {"transformer."},
                                          .differences = mpt_differences,
                                          .describe = describe_mpt,
                                          .is_own = true},
                               .gguf = {.names = {"mpt"},
                                        .config = mpt_gguf_config,
                                        .mappings = kGgufTensors,
                                        .differences = mpt_gguf_differences,
                                        .write = write_mpt_gguf}};

}  // namespace alibi::model
