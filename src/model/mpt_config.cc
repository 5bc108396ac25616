#include "model/mpt_config.h"

#include <algorithm>
#include <map>
#include <memory>
#include <variant>

#include "alibi/version.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "model/check_config.h"
#include "model/position.h"
#include "nn/activation.h"
#include "text/tokenizer_files.h"

namespace alibi {
namespace {

constexpr int64_t largest = 1 << 28;
constexpr const char* kMptType = "mpt";
/// For models that another program's MPT would refuse or, worse, run wrongly.
constexpr const char* kOwnType = "alibi";
/// Real ones have a thousandth of it.
constexpr size_t kMostConfigBytes = size_t{1} << 20;
/// How far others are told that an MPT runs, for they refuse longer texts. ALiBi itself has no end; some of them make a
/// bias of that length in each pass. It is what the longest of MPT's own models was trained at.
constexpr int64_t kLengthForOthers = 65536;

/// The keys under which a file has the fields of a configuration, without those that are called the same.
struct PresentKeys {
  bool hidden_size, max_length, train_length, attention_dropout, layer_norm_epsilon;
  std::vector<PositionField> own;  // of the position method
};

std::string key_of(std::string_view field, const PresentKeys& present) {
  static const std::map<std::string_view, const char*> keys = {{"layers", "n_layers"},
                                                               {"heads", "n_heads"},
                                                               {"kv_heads", "attn_config.kv_n_heads"},
                                                               {"dropout", "resid_pdrop"},
                                                               {"activation_dropout", "alibi.activation_dropout"},
                                                               {"embedding_dropout", "emb_pdrop"},
                                                               {"alibi_bias_max", "attn_config.alibi_bias_max"},
                                                               {"embedding_scale", "alibi.embedding_scale"},
                                                               {"alibi_slopes", "alibi.slopes"},
                                                               {"slope_training", "alibi.slope_training"},
                                                               {"window", "alibi.window"},
                                                               {"adaptive.cutoffs", "alibi.adaptive.cutoffs"},
                                                               {"adaptive.factor", "alibi.adaptive.factor"},
                                                               {"adaptive.dropout", "alibi.adaptive.dropout"}};
  if (field == "expansion") return present.hidden_size ? "ffn_config.ffn_hidden_size / d_model" : "expansion_ratio";
  if (field == "max_length" && present.max_length) return "alibi.max_length";
  if (field == "train_length" || field == "max_length") {
    return present.train_length ? "alibi.train_length" : "max_seq_len";
  }
  if (field == "attention_dropout") {
    return present.attention_dropout ? "alibi.attention_dropout" : "attn_config.attn_pdrop";
  }
  if (field == "norm_eps" && present.layer_norm_epsilon) return "layer_norm_epsilon";
  const auto found = keys.find(field);
  if (found != keys.end()) return found->second;
  const bool is_own =
      std::any_of(present.own.begin(), present.own.end(), [&](const PositionField& own) { return field == own.name; });
  return (is_own ? "alibi." : "") + std::string(field);
}

/// What one of our names stands for.
template <class Value>
Value named(const JsonObject& json, const char* key, Value (*from)(std::string_view)) {
  try {
    return from(json.get<std::string>(key));
  } catch (const UsageError& error) {  // "[config] there is no ..."
    const std::string_view message = error.what();
    fail("[config] {}{}: {}", json.where(), key, message.substr(std::min(message.size(), message.find("] ") + 2)));
  }
}

/// A number of our own; only what would not fit its type is refused here.
int own_number(const JsonObject& own, const char* key, int fallback) {
  return static_cast<int>(own.get_int_or(key, fallback, 0, 1 << 30));
}
int64_t own_number(const JsonObject& own, const char* key, int64_t fallback) {
  return own.get_int_or(key, fallback, 0, int64_t{1} << 40);
}
double own_number(const JsonObject& own, const char* key, double fallback) {
  return own.get_number_or(key, fallback, 0, 1e12);
}

/// MPT's name of the norm and ours.
Norm norm_of(const std::string& name, const std::string& where) {
  if (name == "layernorm" || name == "low_precision_layernorm") return Norm::layer_norm;
  if (name == "rmsnorm" || name == "low_precision_rmsnorm") return Norm::rms_norm;
  fail("[config] {}norm_type is '{}', expected layernorm, low_precision_layernorm, rmsnorm or low_precision_rmsnorm",
       where, name);
}

/// Features of other MPT models that would change the result if they were ignored.
void refuse_unsupported(const JsonObject& json, const JsonObject& attention) {
  const auto refuse = [](bool found, const JsonObject& object, const char* key, const char* meaning) {
    check(!found, "[config] {}{} is set: {} is not supported", object.where(), key, meaning);
  };
  const auto set = [](const JsonObject& object, const char* key) {
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
  refuse(!json.get_or<bool>("tie_word_embeddings", true), json, "tie_word_embeddings",
         "an output projection of its own");
  refuse(json.get_number_or("embedding_fraction", 1, 0, 1) != 1, json, "embedding_fraction", "a gradient fraction");
}

Position position_of(const JsonObject& json, const JsonObject& attention, const JsonObject& own) {
  const bool uses_alibi = attention.get_or<bool>("alibi", false);
  if (own.has("position")) {
    const Position position = named(own, "position", position_from);
    check(uses_alibi == (position == Position::alibi), "[config] {}alibi is {}, but {}position is '{}'",
          attention.where(), uses_alibi, own.where(), name_of(position));
    return position;
  }
  if (uses_alibi) return Position::alibi;  // MPT then ignores learned_pos_emb, which its files set all the same
  if (attention.get_or<bool>("rope", false)) {
    fail("[config] {}rope is set: MPT's rotary variants are not supported, only those of this library's own files",
         attention.where());
  }
  return json.get_or<bool>("learned_pos_emb", true) ? Position::learned : Position::none;
}

Activation activation_of(const JsonObject& json, const JsonObject& own) {
  if (own.has("activation")) return named(own, "activation", activation_from);
  const JsonObject ffn = json.object_or_empty("ffn_config");
  const std::string type = ffn.get_or("ffn_type", "mptmlp");
  check(type == "mptmlp", "[config] {}ffn_type is '{}', expected mptmlp", ffn.where(), type);
  if (!ffn.has("ffn_act_fn")) return Activation::gelu;
  const JsonObject function = ffn.object("ffn_act_fn");
  const std::string name = function.get_or("name", "gelu");
  if (name == "relu") return Activation::relu;
  check(name == "gelu", "[config] {}name is '{}', expected gelu or relu", function.where(), name);
  const std::string approximate = function.get_or("approximate", "none");
  return approximate == "tanh" ? Activation::gelu_tanh : Activation::gelu;
}

AdaptiveConfig adaptive_of(const JsonObject& json) {
  AdaptiveConfig adaptive;
  adaptive.cutoffs = json.get<std::vector<int64_t>>("cutoffs");
  adaptive.factor = static_cast<int>(json.get_int("factor", 1, 1 << 20));
  adaptive.dropout = static_cast<float>(json.get_number_or("dropout", 0, 0, 1));
  return adaptive;
}

/// Whether numbers that transformers takes as integers only are written with a fraction, as alibi once did.
bool has_fractions_for_integers(const JsonObject& json, const JsonObject& attention) {
  const auto wrong = [](const JsonObject& object, const char* key) {
    return object.has(key) && !object.raw().at(key).is_number_integer();
  };
  return wrong(attention, "attn_pdrop") || wrong(attention, "alibi_bias_max") || wrong(json, "expansion_ratio");
}

OrderedJson integer_if_whole(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? OrderedJson(whole) : OrderedJson(value);
}

}  // namespace

std::vector<std::string> differences_from_mpt(const LanguageModelConfig& config) {
  const TransformerConfig& t = config.transformer;
  std::vector<std::string> found;
  const auto expect = [&](bool same, const std::string& difference) {
    if (!same) found.push_back(difference);
  };
  expect(t.position == Position::alibi, fmt::format("position {}", name_of(t.position)));
  expect(t.position != Position::alibi || t.alibi_bias_max == 8, fmt::format("alibi_bias_max {}", t.alibi_bias_max));
  const bool uses_alibi = t.position == Position::alibi;
  expect(!uses_alibi || t.alibi_slopes.empty(), fmt::format("slopes {}", fmt::join(t.alibi_slopes, " ")));
  expect(!uses_alibi || t.slope_training == SlopeTraining::fixed,
         fmt::format("slopes that are {}", name_of(t.slope_training)));
  expect(t.window == 0, fmt::format("window {}", t.window));
  expect(t.causal, "an encoder");
  expect(t.activation == Activation::gelu, fmt::format("activation {}", name_of(t.activation)));
  expect(t.norm == Norm::layer_norm, fmt::format("norm {}", name_of(t.norm)));
  expect(!t.bias, "biases");
  expect(t.key_heads() == t.heads, fmt::format("{} kv_heads for {} heads", t.key_heads(), t.heads));
  expect(t.ffn_dim() == 4 * t.d_model, fmt::format("ffn_dim {} for d_model {}", t.ffn_dim(), t.d_model));
  expect(t.final_norm, "no final norm");
  expect(config.embedding_scale == 1, fmt::format("embedding_scale {}", config.embedding_scale));
  expect(!config.adaptive, "adaptive vocabulary");
  return found;
}

MptConfig read_mpt_config(const std::filesystem::path& folder) {
  check(is_folder(folder), "[model] {}: no such folder", folder.string());
  const std::filesystem::path path = folder / kConfigFile;
  check(path_exists(path), "[model] {}: not a model folder, there is no {} in it", folder.string(), kConfigFile);
  const JsonObject json = read_json_object(path, kMostConfigBytes);
  const std::string type = json.get<std::string>("model_type");
  check(type == kMptType || type == kOwnType, "[config] {}model_type is '{}', expected {} or {}", json.where(), type,
        kMptType, kOwnType);
  const JsonObject attention = json.object_or_empty("attn_config");
  const JsonObject own = json.object_or_empty("alibi");
  refuse_unsupported(json, attention);

  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.layers = static_cast<int>(json.get_int("n_layers", 0, 10000));
  t.d_model = static_cast<int>(json.get_int("d_model", 1, 1 << 20));
  t.heads = static_cast<int>(json.get_int("n_heads", 1, 4096));
  t.expansion = json.get_number_or("expansion_ratio", 4, 0, 64);
  const JsonObject ffn = json.object_or_empty("ffn_config");
  if (ffn.has("ffn_hidden_size")) {
    t.expansion = static_cast<double>(ffn.get_int("ffn_hidden_size", 1, int64_t{64} * t.d_model)) / t.d_model;
  }
  config.vocab_size = static_cast<int>(json.get_int("vocab_size", 1, largest));
  constexpr int64_t longest = int64_t{1} << 40;
  const bool has_train_length = own.has("train_length");
  if (!has_train_length || json.has("max_seq_len")) config.train_length = json.get_int("max_seq_len", 0, longest);
  if (has_train_length) config.train_length = own.get_int("train_length", 0, longest);
  t.bias = !json.get_or<bool>("no_bias", true);
  t.norm = norm_of(json.get_or("norm_type", "low_precision_layernorm"), json.where());
  const bool has_layer_norm_epsilon = !json.has("norm_eps") && json.has("layer_norm_epsilon");
  t.norm_eps =
      static_cast<float>(json.get_number_or(has_layer_norm_epsilon ? "layer_norm_epsilon" : "norm_eps", 1e-5, 0, 1));
  t.final_norm = own.get_or<bool>("final_norm", true);
  t.embedding_dropout = static_cast<float>(json.get_number_or("emb_pdrop", 0, 0, 1));
  t.activation_dropout = static_cast<float>(own.get_number_or("activation_dropout", 0, 0, 1));
  t.dropout = static_cast<float>(json.get_number_or("resid_pdrop", 0, 0, 1));
  t.attention_dropout =
      static_cast<float>(own.has("attention_dropout") ? own.get_number_or("attention_dropout", 0, 0, 1)
                                                      : attention.get_number_or("attn_pdrop", 0, 0, 1));
  t.alibi_bias_max = attention.get_number_or("alibi_bias_max", 8, 0, 1e6);
  t.causal = own.get_or<bool>("causal", true);
  if (own.has("bidirectional")) t.bidirectional = named(own, "bidirectional", bidirectional_from);
  if (own.has("slopes")) {
    const auto slopes = own.get<std::vector<double>>("slopes");
    t.alibi_slopes.assign(slopes.begin(), slopes.end());
  }
  t.window = own_number(own, "window", t.window);
  if (own.has("slope_training")) t.slope_training = named(own, "slope_training", slope_training_from);
  const std::string kind = attention.get_or("attn_type", "multihead_attention");
  if (kind == "multiquery_attention") {
    t.kv_heads = 1;
  } else if (kind == "grouped_query_attention") {
    t.kv_heads = static_cast<int>(attention.get_int("kv_n_heads", 1, 4096));
  } else {
    check(kind == "multihead_attention",
          "[config] {}attn_type is '{}', expected multihead_attention, "
          "multiquery_attention or grouped_query_attention",
          attention.where(), kind);
  }
  t.position = position_of(json, attention, own);
  const std::unique_ptr<PositionMethod> position = make_position(t);
  position->fit(t, config.train_length);
  for (const PositionField& field : position->fields()) {
    std::visit([&](auto member) { t.*member = own_number(own, field.name, t.*member); }, field.member);
  }
  t.activation = activation_of(json, own);
  config.embedding_scale = static_cast<float>(own.get_number_or("embedding_scale", 1, 0, 1e6));
  if (own.has("adaptive")) config.adaptive = adaptive_of(own.object("adaptive"));
  const PresentKeys present = {ffn.has("ffn_hidden_size"),   own.has("max_length"),  own.has("train_length"),
                               own.has("attention_dropout"), has_layer_norm_epsilon, position->fields()};
  check_config(config, {[&](std::string_view field) { return key_of(field, present); },
                        [&](const std::string& problem) { fail("[config] {}{}", json.where(), problem); }});

  MptConfig result{config, {}, {}, differences_from_mpt(config)};
  if (result.differences.empty()) {  // it could be one: is the file?
    if (type != kMptType) result.differences.push_back(fmt::format("model_type {}", type));
    if (has_fractions_for_integers(json, attention)) {
      result.differences.emplace_back("attn_pdrop, alibi_bias_max or expansion_ratio is not written as an integer");
    }
    if (!json.has("layer_norm_epsilon") && t.norm_eps != TransformerConfig().norm_eps) {
      result.differences.emplace_back("norm_eps without layer_norm_epsilon");
    }
  }
  if (own.has("tokenizer")) {
    const JsonObject tokenizer = own.object("tokenizer");
    result.tokenizer_kind = tokenizer.get<std::string>("kind");
    result.tokenizer_fingerprint = tokenizer.get<std::string>("fingerprint");
  }
  return result;
}

OrderedJson mpt_config_json(const LanguageModelConfig& config, const Tokenizer* tokenizer) {
  const TransformerConfig& t = config.transformer;
  const bool is_mpt = differences_from_mpt(config).empty();
  const bool uses_alibi = t.position == Position::alibi;
  const bool gated = nn::is_gated(t.activation);
  const bool grouped = t.key_heads() != t.heads;
  const bool tanh = t.activation == Activation::gelu_tanh;
  OrderedJson attention = {{"alibi", uses_alibi},
                           {"alibi_bias_max", integer_if_whole(t.alibi_bias_max)},
                           {"attn_impl", "torch"},
                           {"attn_pdrop", 0},  // transformers takes integers only: ours stands under "alibi"
                           {"attn_type", grouped ? "grouped_query_attention" : "multihead_attention"},
                           {"attn_uses_sequence_id", false},
                           {"clip_qkv", nullptr},
                           {"prefix_lm", false},
                           {"qk_ln", false},
                           {"softmax_scale", nullptr}};
  if (grouped) attention["kv_n_heads"] = t.key_heads();
  OrderedJson ffn = {{"ffn_type", gated ? "mptglu" : "mptmlp"}, {"ffn_hidden_size", t.ffn_dim()}};
  if (t.activation != Activation::gelu) {
    const char* name = t.activation == Activation::relu ? "relu" : t.activation == Activation::swiglu ? "silu" : "gelu";
    ffn["ffn_act_fn"] = {{"name", name}};
    if (tanh) ffn["ffn_act_fn"]["approximate"] = "tanh";
  }
  OrderedJson json = {{"architectures",
                       {is_mpt     ? "MPTForCausalLM"
                        : t.causal ? "AlibiForCausalLM"
                                   : "AlibiForMaskedLM"}},
                      {"model_type", is_mpt ? kMptType : kOwnType},
                      {"d_model", t.d_model},
                      {"n_heads", t.heads},
                      {"n_layers", t.layers},
                      {"expansion_ratio",
                       t.ffn_dim() % t.d_model == 0 ? OrderedJson(t.ffn_dim() / t.d_model) : OrderedJson(t.expansion)},
                      {"vocab_size", config.vocab_size},
                      {"no_bias", !t.bias},
                      {"norm_type", t.norm == Norm::rms_norm ? "rmsnorm" : "layernorm"},
                      {"norm_eps", t.norm_eps},  // MPT's own code reads this one, transformers' the next
                      {"layer_norm_epsilon", t.norm_eps},
                      {"learned_pos_emb", t.position == Position::learned},
                      {"emb_pdrop", t.embedding_dropout},
                      {"resid_pdrop", t.dropout},
                      {"logit_scale", nullptr},
                      {"tie_word_embeddings", true},
                      {"use_cache", false},
                      {"torch_dtype", "float32"},
                      {"attn_config", attention},
                      {"ffn_config", ffn}};
  if (is_mpt) json["max_seq_len"] = std::max(config.train_length, kLengthForOthers);
  if (tokenizer != nullptr) {
    json["bos_token_id"] = tokenizer->end_of_text();
    // One that ends lines does not end what is generated.
    if (!tokenizer->end_of_text_ends_lines()) json["eos_token_id"] = tokenizer->end_of_text();
  }
  OrderedJson own = {{"version", version},
                     {"position", name_of(t.position)},
                     {"activation", name_of(t.activation)},
                     {"train_length", config.train_length}};
  if (config.embedding_scale != 1) own["embedding_scale"] = config.embedding_scale;
  if (!t.final_norm) own["final_norm"] = false;
  if (t.attention_dropout > 0) own["attention_dropout"] = t.attention_dropout;
  if (t.activation_dropout > 0) own["activation_dropout"] = t.activation_dropout;
  if (!t.causal) {
    own["causal"] = false;
    own["bidirectional"] = name_of(t.bidirectional);
    json["mask_token_id"] = *config.mask_token();
  }
  if (!t.alibi_slopes.empty()) own["slopes"] = t.alibi_slopes;
  if (t.slope_training != SlopeTraining::fixed) own["slope_training"] = name_of(t.slope_training);
  if (t.window > 0) own["window"] = t.window;
  if (config.adaptive) {
    const AdaptiveConfig& adaptive = *config.adaptive;
    own["adaptive"] = {{"cutoffs", adaptive.cutoffs}, {"factor", adaptive.factor}, {"dropout", adaptive.dropout}};
  }
  for (const PositionField& field : make_position(t)->fields()) {
    std::visit([&](auto member) { own[field.name] = t.*member; }, field.member);
  }
  if (tokenizer != nullptr) {
    own["tokenizer"] = {{"kind", tokenizer->kind()}, {"fingerprint", fingerprint_text(*tokenizer)}};
  }
  json["alibi"] = own;
  return json;
}

}  // namespace alibi
