// The Forgetting Transformer (FoX, arXiv 2503.02130) as flash-linear-attention has it: forget gates, RMS norms, SwiGLU.
// What its paper calls log f, and its code g, is the log_decay of our attention.
#include <fmt/format.h>

#include <utility>

#include "formats/options.h"
#include "model/config_fields.h"
#include "model/families/config_reader.h"
#include "model/families/family.h"

namespace alibi::model {
namespace {

constexpr const char* kForgettingType = "forgetting_transformer";

/// The width of the feed-forward layer: two thirds of hidden_ratio * hidden_size, rounded up to a multiple of 256.
int64_t forgetting_ffn_dim(ConfigReader& in, int64_t width) {
  if (in.file().has("intermediate_size")) return in.file().get_int("intermediate_size", 1, 64 * width);
  const double ratio = in.number_or("expansion", "hidden_ratio", 4, 0);
  const auto wanted = static_cast<int64_t>(static_cast<double>(width) * ratio * 2 / 3);
  return (wanted + 255) / 256 * 256;
}

LanguageModelConfig forgetting_config(const formats::JsonObject& json) {
  ConfigReader in(json);
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  in.sizes(config, {"num_hidden_layers"}, {"hidden_size"}, {"num_heads"}, "num_kv_heads");
  config.train_length = json.get_int_or("max_position_embeddings", 0, 0, int64_t{1} << 40);
  in.refuse_unless("qkv_bias", false, "a bias of queries, keys and values alone");
  in.refuse_unless("window_size", nullptr, "a window, which flash-linear-attention applies to cached keys only,");
  in.refuse_unless("attnres_block_size", nullptr, "attention over the layers");
  in.refuse_unless("hidden_act", "swish", "another activation");
  t.position = position_from("gates");
  t.attention.output_gate = json.get_or<bool>("use_output_gate", false);
  t.attention.qk_norm = json.get_or<bool>("qk_norm", false);
  if (t.attention.qk_norm) {
    t.attention.qk_norm_per_head = true;
    t.attention.qk_norm_eps = 1e-5f;  // whatever norm_eps is
  }
  t.block.expansion = static_cast<double>(forgetting_ffn_dim(in, t.d_model)) / t.d_model;
  in.found("expansion", json.has("intermediate_size") ? "intermediate_size" : "hidden_ratio");
  t.block.activation = Activation::swiglu;
  t.block.norm = Norm::rms_norm;
  t.block.norm_eps = static_cast<float>(in.number_or("norm_eps", "norm_eps", 1e-6, 0));
  t.block.bias = false;
  t.block.dropout = 0;
  t.head.final_norm = true;
  t.head.tied = json.get_or<bool>("tie_word_embeddings", false);
  return in.checked(config);
}

void describe_forgetting(const LanguageModelConfig& config, formats::OrderedJson& json) {
  const TransformerConfig& t = config.transformer;
  json["architectures"] = {"ForgettingTransformerForCausalLM"};
  json["model_type"] = kForgettingType;
  json["hidden_size"] = t.d_model;
  json["num_hidden_layers"] = t.layers;
  json["num_heads"] = t.attention.heads;
  json["num_kv_heads"] = t.attention.kv_heads > 0 ? formats::OrderedJson(t.attention.kv_heads) : nullptr;
  json["qkv_bias"] = false;
  json["qk_norm"] = t.attention.qk_norm;
  json["window_size"] = nullptr;
  json["use_output_gate"] = t.attention.output_gate;
  json["hidden_ratio"] = nullptr;
  json["intermediate_size"] = t.ffn_dim();
  json["hidden_act"] = "swish";
  json["norm_eps"] = t.block.norm_eps;
  json["tie_word_embeddings"] = t.head.tied;
  json["vocab_size"] = config.vocab_size;
  json["bos_token_id"] = json["eos_token_id"] = nullptr;  // flash-linear-attention's defaults are 1 and 2
  json["dtype"] = "float32";
}

/// The fields that have another value after they were written and read.
std::vector<std::string> forgetting_differences(const LanguageModelConfig& model) {
  LanguageModelConfig config = model;
  TransformerConfig& t = config.transformer;
  if (t.attention.qk_norm && t.attention.qk_norm_eps == 0) t.attention.qk_norm_eps = t.block.norm_eps;
  formats::OrderedJson json;
  describe_forgetting(config, json);
  const LanguageModelConfig read = forgetting_config({formats::Json::parse(json.dump()), ""});
  std::vector<std::string> found;
  for (const ConfigField& field : config_fields()) {
    // Neither the training length nor the initial values change what a model computes, nor what no folder stores.
    if (!field.changes_result || field.more.training_only || field.name == std::string_view("gate_slopes")) continue;
    if (field.more.json == nullptr) continue;
    if (!field.belongs_to(t.position) || field.get(config) == field.get(read)) continue;
    found.push_back(fmt::format("{} {}", field.name, formats::short_text_of(field.get(config))));
  }
  if (config.adaptive) found.emplace_back("adaptive vocabulary");
  return found;
}

constexpr Mapping kForgettingTensors[] = {
    {"wte", {"model.embeddings"}},
    {"lm_head", {"lm_head"}},
    {"norm_f", {"model.norm"}},
    {"gates.#", {"model.layers.#.attn.f_proj"}},
    {"blocks.#.norm_1", {"model.layers.#.attn_norm"}},
    {"blocks.#.attn.Wqkv", {"model.layers.#.attn.q_proj", "model.layers.#.attn.k_proj", "model.layers.#.attn.v_proj"}},
    {"blocks.#.attn.q_ln", {"model.layers.#.attn.q_norm"}},
    {"blocks.#.attn.k_ln", {"model.layers.#.attn.k_norm"}},
    {"blocks.#.attn.gate_proj", {"model.layers.#.attn.g_proj"}},
    {"blocks.#.attn.out_proj", {"model.layers.#.attn.o_proj"}},
    {"blocks.#.norm_2", {"model.layers.#.mlp_norm"}},
    {"blocks.#.ffn.up_proj", {"model.layers.#.mlp.gate_proj", "model.layers.#.mlp.up_proj"}},
    {"blocks.#.ffn.down_proj", {"model.layers.#.mlp.down_proj"}}};

}  // namespace

constinit const Family kForgetting = {
    .name = kForgettingType,
    .folder = {
        .names = {kForgettingType},
        .config = [](const formats::JsonObject& json, const formats::WeightSource&) { return forgetting_config(json); },
        .mappings = kForgettingTensors,
        .tied_head = "lm_head.weight",
        .differences = forgetting_differences,
        .describe = describe_forgetting}};

}  // namespace alibi::model
