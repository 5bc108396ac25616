#include "model/own_config.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <variant>

#include "alibi/version.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/options.h"
#include "model/check_config.h"
#include "model/config_fields.h"
#include "nn/activation.h"
#include "text/tokenizer_files.h"

namespace alibi::model {
namespace {

/// The key of a configuration field in the file.
std::string key_of(std::string_view name) {
  if (name == "expansion") return "ffn_config.ffn_hidden_size / d_model";
  if (name.starts_with("adaptive.")) return "alibi." + std::string(name);
  for (const ConfigField& field : config_fields()) {
    if (field.more.json && name == field.name) return field.more.json;
  }
  return std::string(name);
}

/// Whether the object contains a key: "alibi.window" is inside "alibi".
bool stands_in(std::string_view key, std::string_view object) { return key.starts_with(object); }
std::string_view last_word(std::string_view key) { return key.substr(key.rfind('.') + 1); }

/// The value of a field that the file does not contain.
OptionValue meant_if_absent(const ConfigField& field) {
  return field.more.if_absent.value_or(field.get(LanguageModelConfig()));
}

/// Reads a field from the object.
void read_field(const ConfigField& field, const formats::JsonObject& object, LanguageModelConfig& config) {
  const std::string_view key = last_word(field.more.json);
  if (!field.more.required && !field.more.always_written && !object.has(key)) {
    return field.set(config, meant_if_absent(field));
  }
  const formats::OptionRange& range = field.range;
  const double low = range.least.value_or(range.above.value_or(0)),
               high = range.most.value_or(range.below.value_or(1e38));
  OptionValue value = field.get(config);
  std::visit(
      [&](auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, int64_t>) {
          held = object.get_int(key, static_cast<int64_t>(low), static_cast<int64_t>(high));
        } else if constexpr (std::is_same_v<Held, double>) {
          held = object.get_number(key, low, high);
        } else if constexpr (!std::is_same_v<Held, uint64_t>) {
          held = object.get<Held>(key);
        }
      },
      value);
  if (const auto* name = std::get_if<std::string>(&value)) {
    check(std::find(field.choices.begin(), field.choices.end(), *name) != field.choices.end(),
          "[config] {}{} is '{}'; choose from {}", object.where(), key, *name, fmt::join(field.choices, ", "));
  }
  field.set(config, value);
}

/// Whether the file has the field under the library's own key.
bool is_own(const ConfigField& field) {
  return field.more.json && stands_in(field.more.json, "alibi.") && !field.more.json_by_hand;
}
bool goes_without_saying(const ConfigField& field, const LanguageModelConfig& config) {
  return field.get(config) == meant_if_absent(field);
}

/// Converts one of our names to its value.
template <class Value>
Value named(const formats::JsonObject& json, const char* key, Value (*from)(std::string_view)) {
  try {
    return from(json.get<std::string>(key));
  } catch (const UsageError& error) {  // adds the file and the key to "[config] there is no ..."
    const std::string_view message = error.what();
    fail("[config] {}{}: {}", json.where(), key, message.substr(std::min(message.size(), message.find("] ") + 2)));
  }
}

/// Keys that such files have under other names, or not at all, and that would change the result if they were ignored.
void refuse_unsupported(const formats::JsonObject& json, const formats::JsonObject& attention) {
  const auto refuse = [](bool found, const formats::JsonObject& object, const char* key, const char* meaning) {
    check(!found, "[config] {}{} is set: {} is not supported", object.where(), key, meaning);
  };
  const auto set = [](const formats::JsonObject& object, const char* key) {
    return object.has(key) && !(object.raw().at(key).is_boolean() && !object.raw().at(key).get<bool>());
  };
  refuse(set(attention, "clip_qkv"), attention, "clip_qkv", "clamping of queries, keys and values");
  refuse(set(attention, "qk_ln"), attention, "qk_ln", "normalisation of queries and keys");
  refuse(set(attention, "qk_gn"), attention, "qk_gn", "normalisation of queries and keys");
  refuse(set(attention, "prefix_lm"), attention, "prefix_lm", "prefix attention");
  refuse(set(attention, "attn_logit_softcapping"), attention, "attn_logit_softcapping", "soft capping");
  refuse(set(attention, "softmax_scale"), attention, "softmax_scale", "another scale than 1 / sqrt(head_dim)");
  refuse(set(json, "logit_scale"), json, "logit_scale", "a scale of the logits");
  refuse(set(json, "final_logit_softcapping"), json, "final_logit_softcapping", "soft capping");
  refuse(set(json, "block_overrides"), json, "block_overrides", "layers that differ");
  refuse(attention.get_or<int64_t>("sliding_window_size", -1) != -1, attention, "sliding_window_size", "a window");
  refuse(!attention.get_or<bool>("fused_qkv", true), attention, "fused_qkv", "a layout with separate projections");
  const bool is_tied = json.object_or_empty("alibi").get_or<bool>("tied", true);
  refuse(json.get_or<bool>("tie_word_embeddings", is_tied) != is_tied, json, "tie_word_embeddings",
         "an output projection of its own");
  refuse(json.get_number_or("embedding_fraction", 1, 0, 1) != 1, json, "embedding_fraction", "a gradient fraction");
}

AdaptiveConfig adaptive_of(const formats::JsonObject& json) {
  AdaptiveConfig adaptive;
  adaptive.cutoffs = json.get<std::vector<int64_t>>("cutoffs");
  adaptive.factor = static_cast<int>(json.get_int("factor", 1, 1 << 20));
  adaptive.dropout = static_cast<float>(json.get_number_or("dropout", 0, 0, 1));
  return adaptive;
}

formats::OrderedJson integer_if_whole(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? formats::OrderedJson(whole) : formats::OrderedJson(value);
}

/// Throws for keys that this version does not know: a newer version may have meant something by them.
void refuse_unknown(const formats::JsonObject& own) {
  std::set<std::string_view> known = {"version",  "position",  "activation", "train_length", "attention_dropout",
                                      "adaptive", "tokenizer", "tied",       "max_length"};
  for (const ConfigField& field : config_fields()) {
    if (field.more.json && stands_in(field.more.json, "alibi.")) known.insert(last_word(field.more.json));
  }
  for (const auto& [key, value] : own.raw().items()) {
    check(known.count(key) > 0,
          "[config] {}{} is unknown to alibi {}; the file is of version {}, use that or a newer one", own.where(), key,
          version, own.get_or<std::string>("version", "unknown"));
  }
}

}  // namespace

std::vector<const ConfigField*> unusual_fields(const LanguageModelConfig& config) {
  std::vector<const ConfigField*> fields;
  for (const ConfigField& field : config_fields()) {
    const bool is_said = is_own(field) && field.belongs_to(config.transformer.position);
    if (is_said && !goes_without_saying(field, config)) fields.push_back(&field);
  }
  return fields;
}

void check_model_folder(const std::filesystem::path& folder) {
  if (core::path_exists(folder / kConfigFile)) return;
  const std::filesystem::path checkpoints = folder / "checkpoints";
  std::pair<size_t, std::string> newest;  // a longer name has a larger number
  std::error_code error;
  for (std::filesystem::directory_iterator entry(checkpoints, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (core::path_exists(entry->path() / kConfigFile)) newest = std::max(newest, {name.size(), name});
  }
  check(
      newest.second.empty(),
      "[model] {0}: the training in this folder is not finished, so it has no {1}; use its newest checkpoint, {2}, or "
      "finish it with `alibi train --resume {0}`",
      folder.string(), kConfigFile, (checkpoints / newest.second).string());
  check(!core::is_folder(checkpoints),
        "[model] {0}: the training in this folder has no checkpoint yet, so there is no model; finish it with `alibi "
        "train --resume {0}`",
        folder.string());
  fail("[model] {}: not a model folder, there is no {} in it", folder.string(), kConfigFile);
}

bool is_own_config(const formats::JsonObject& config) {
  // Folders of some families also have this key, which tells whether the model uses ALiBi.
  return config.has("alibi") && !config.raw().at("alibi").is_boolean();
}

OwnConfig read_own_config(const std::filesystem::path& folder) {
  check(core::is_folder(folder), "[model] {}: no such folder", folder.string());
  check_model_folder(folder);
  const formats::JsonObject json = formats::read_json_object(folder / kConfigFile, kMaxConfigBytes);
  const formats::JsonObject attention = json.object("attn_config");
  const formats::JsonObject own = json.object("alibi"), ffn = json.object("ffn_config");
  refuse_unsupported(json, attention);
  refuse_unknown(own);

  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  config.train_length = own.get_int("train_length", 0, int64_t{1} << 40);
  t.position = named(own, "position", position_from);
  const bool uses_alibi = t.position.bias == Position::alibi.bias;
  check(attention.get<bool>("alibi") == uses_alibi, "[config] {}alibi is {}, but {}position is '{}'", attention.where(),
        !uses_alibi, own.where(), name_of(t.position));
  for (const ConfigField& field : config_fields()) {
    if (!field.more.json || field.more.json_by_hand || (is_own(field) && !field.belongs_to(t.position))) continue;
    const bool of_attention = stands_in(field.more.json, "attn_config.");
    read_field(field, is_own(field) ? own : of_attention ? attention : json, config);
  }
  const int64_t hidden = ffn.get_int("ffn_hidden_size", 1, int64_t{64} * t.d_model);
  t.block.expansion = static_cast<double>(hidden) / t.d_model;
  t.block.bias = !json.get<bool>("no_bias");
  const auto norm = json.get<std::string>("norm_type");
  check(norm == "layernorm" || norm == "rmsnorm", "[config] {}norm_type is '{}', expected layernorm or rmsnorm",
        json.where(), norm);
  t.block.norm = norm == "rmsnorm" ? Norm::rms_norm : Norm::layer_norm;
  t.block.norm_eps = static_cast<float>(json.get_number("norm_eps", 0, 1));
  if (attention.has("kv_n_heads")) t.attention.kv_heads = static_cast<int>(attention.get_int("kv_n_heads", 1, 4096));
  t.block.activation = named(own, "activation", activation_from);
  if (own.has("adaptive")) config.adaptive = adaptive_of(own.object("adaptive"));
  check_config(config, {key_of, [&](const std::string& problem) { fail("[config] {}{}", json.where(), problem); }});

  OwnConfig result{config, {}, {}};
  if (own.has("tokenizer")) {
    const formats::JsonObject tokenizer = own.object("tokenizer");
    result.tokenizer_kind = tokenizer.get<std::string>("kind");
    result.tokenizer_fingerprint = tokenizer.get<std::string>("fingerprint");
  }
  return result;
}

void set_special_tokens(const Tokenizer& tokenizer, formats::OrderedJson& json) {
  json["bos_token_id"] = tokenizer.end_of_text();
  // An end-of-text token that ends lines must not end generated text.
  if (!tokenizer.end_of_text_ends_lines()) json["eos_token_id"] = tokenizer.end_of_text();
}

formats::OrderedJson own_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer) {
  const TransformerConfig& t = config.transformer;
  const bool uses_alibi = t.position.bias == Position::alibi.bias;
  const bool gated = nn::is_gated(t.block.activation);
  const bool grouped = t.key_heads() != t.attention.heads;
  const bool tanh = t.block.activation == Activation::gelu_tanh;
  formats::OrderedJson attention = {{"alibi", uses_alibi},
                                    {"alibi_bias_max", integer_if_whole(t.attention.alibi_bias_max)},
                                    {"attn_type", grouped ? "grouped_query_attention" : "multihead_attention"}};
  if (grouped) attention["kv_n_heads"] = t.key_heads();
  formats::OrderedJson ffn = {{"ffn_type", gated ? "mptglu" : "mptmlp"}, {"ffn_hidden_size", t.ffn_dim()}};
  if (t.block.activation != Activation::gelu) {
    const char* name = t.block.activation == Activation::relu     ? "relu"
                       : t.block.activation == Activation::swiglu ? "silu"
                                                                  : "gelu";
    ffn["ffn_act_fn"] = {{"name", name}};
    if (tanh) ffn["ffn_act_fn"]["approximate"] = "tanh";
  }
  formats::OrderedJson json = {
      {"architectures", {t.attention.causal ? "AlibiForCausalLM" : "AlibiForMaskedLM"}},
      {"model_type", kOwnType},
      {"d_model", t.d_model},
      {"n_heads", t.attention.heads},
      {"n_layers", t.layers},
      {"expansion_ratio", t.ffn_dim() % t.d_model == 0 ? formats::OrderedJson(t.ffn_dim() / t.d_model)
                                                       : formats::OrderedJson(t.block.expansion)},
      {"vocab_size", config.vocab_size},
      {"no_bias", !t.block.bias},
      {"norm_type", t.block.norm == Norm::rms_norm ? "rmsnorm" : "layernorm"},
      {"norm_eps", t.block.norm_eps},
      {"learned_pos_emb", t.position.input == Position::learned.input},
      {"emb_pdrop", t.embedding.dropout},
      {"resid_pdrop", t.block.dropout},
      {"tie_word_embeddings", t.head.tied},
      {"torch_dtype", "float32"},
      {"attn_config", attention},
      {"ffn_config", ffn}};
  if (tokenizer != nullptr) set_special_tokens(*tokenizer, json);
  formats::OrderedJson own = {{"version", version},
                              {"position", name_of(t.position)},
                              {"activation", name_of(t.block.activation)},
                              {"train_length", config.train_length}};
  if (const std::optional<int> mask = config.mask_token()) json["mask_token_id"] = *mask;
  for (const ConfigField& field : config_fields()) {
    if (!is_own(field) || !field.belongs_to(t.position)) continue;
    if (!field.more.always_written && goes_without_saying(field, config)) continue;
    own[std::string(last_word(field.more.json))] = formats::json_of(field.get(config));
  }
  if (config.adaptive) {
    const AdaptiveConfig& adaptive = *config.adaptive;
    own["adaptive"] = {{"cutoffs", adaptive.cutoffs}, {"factor", adaptive.factor}, {"dropout", adaptive.dropout}};
  }
  if (tokenizer != nullptr) {
    own["tokenizer"] = {{"kind", tokenizer->kind()}, {"fingerprint", text::fingerprint_text(*tokenizer)}};
  }
  json["alibi"] = own;
  return json;
}

}  // namespace alibi::model
