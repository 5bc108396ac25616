// The one declaration of each field of a model's configuration; fields of one position method are declared in its file
// (model/positions). Whatever reads, writes, checks, offers or shows fields
// goes through this table. Fields that config.json stores in another form (`json_by_hand`) are also in
// model/own_config.cc.
#include "model/config_fields.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "formats/options.h"
#include "model/check_config.h"
#include "model/field_table.h"
#include "model/position.h"

namespace alibi::model {
namespace {

std::span<const char* const> position_choices() {
  static const auto& names = *[] {
    auto* const all = new std::vector<const char*>;
    for (const PositionMethod& method : position_methods()) all->push_back(method.name);
    all->push_back("none");
    return all;
  }();
  return names;
}

/// In the order of config.json and of the help.
std::vector<ConfigField> shared_fields() {
  constexpr formats::OptionRange kRate{.least = 0, .below = 1};
  constexpr double kLongest = 0x1p40, kLargest = largest_extent;
  return {
      {{.name = "position",
        ALIBI_PLACE(transformer.position),
        .choices = position_choices(),
        .help = "Position method (several are joined by +)"},
       {.json = "alibi.position", .json_by_hand = true}},
      {{ALIBI_FIELD("layers", transformer.layers), .group = "Model and position", .range = {.least = 0, .most = 10'000},
        .help = "Number of transformer blocks", .default_text = formats::kPresetDefault},
       {.json = "n_layers", .required = true, .offered = true}},
      {{ALIBI_FIELD("d_model", transformer.d_model), .range = {.least = 1, .most = kLargest},
        .help = "Width of the model: values per token in the residual stream", .default_text = formats::kPresetDefault},
       {.json = "d_model", .required = true, .offered = true}},
      {{ALIBI_FIELD("heads", transformer.attention.heads), .range = {.least = 1, .most = 4096},
        .help = "Number of attention heads", .default_text = formats::kPresetDefault},
       {.json = "n_heads", .required = true, .offered = true}},
      {{ALIBI_FIELD("kv_heads", transformer.attention.kv_heads), .range = {.least = 0, .most = 4096},
        .help = "Number of key/value heads (0 selects as many as attention heads)"},
       {.json = "attn_config.kv_n_heads", .json_by_hand = true}},
      {{ALIBI_FIELD("expansion", transformer.block.expansion), .range = {.above = 0, .most = 64},
        .help = "Width of the feed-forward layer divided by d_model",
        .changes_result = false},  // ffn_dim, which follows from it, does change the result
       {.json = "expansion_ratio", .json_by_hand = true}},
      {{ALIBI_FIELD("activation", transformer.block.activation),
        .help = "Activation function of the feed-forward layer", .default_text = formats::kPresetDefault, .rare = true},
       {.json = "alibi.activation", .json_by_hand = true, .offered = true}},
      {{ALIBI_FIELD("norm", transformer.block.norm),
        .help = "Kind of norm before the attention and the feed-forward layer", .default_text = formats::kPresetDefault,
        .rare = true},
       {.json = "norm_type", .json_by_hand = true, .offered = true}},
      {{ALIBI_FIELD("norm_eps", transformer.block.norm_eps), .range = {.above = 0, .below = 1},
        .help = "Constant added to the variance in norms"},
       {.json = "norm_eps", .json_by_hand = true}},
      {{ALIBI_FIELD("bias", transformer.block.bias), .help = "Linear layers and layer norms have biases"},
       {.json = "no_bias", .json_by_hand = true}},
      {{ALIBI_FIELD("up_bias", transformer.block.up_bias),
        .help = "The first feed-forward layer has biases, if linear layers do"},
       {.json = "alibi.up_bias"}},
      {{ALIBI_FIELD("norm_bias", transformer.block.norm_bias),
        .help = "Which norms have biases (same: if linear layers do)"},
       {.json = "alibi.norm_bias"}},
      {{ALIBI_FIELD("residual", transformer.block.residual),
        .help = "What branches are added to: the sum of all before (pre-norm), or the norm's output (post-norm)"},
       {.json = "alibi.residual"}},
      {{ALIBI_FIELD("normed_attention", transformer.block.normed_attention),
        .help = "The attention's output is added to its input and normalized before it is added to the stream"},
       {.json = "alibi.normed_attention"}},
      {{ALIBI_FIELD("vocab_size", vocab_size), .range = {.least = 1, .most = 1 << 28},
        .help = "Number of different tokens, including the mask token of an encoder"},
       {.json = "vocab_size", .required = true}},
      {{ALIBI_FIELD("train_length", train_length), .range = {.least = 0, .most = kLongest},
        .help = "Training length of the last training run",
        .changes_result = false},  // the option `length` changes the result
       {.json = "alibi.train_length", .json_by_hand = true}},
      {{ALIBI_FIELD("embedding_scale", transformer.embedding.scale), .range = {.above = 0, .most = 1e6},
        .help = "Factor that multiplies the token embeddings, with every position method",
        .default_text = formats::kPresetDefault, .rare = true},
       {.json = "alibi.embedding_scale", .if_absent = 1.0, .offered = true}},
      {{ALIBI_FIELD("token_types", transformer.embedding.token_types), .range = {.least = 0, .most = 4096},
        .help = "Encoders: number of segments that have an embedding each (0: none)"},
       {.json = "alibi.token_types"}},
      {{ALIBI_FIELD("predicts", transformer.head.predicts),
        .help = "The model has an output projection, which predicts tokens"},
       {.json = "alibi.predicts"}},
      {{ALIBI_FIELD("labels", transformer.head.labels), .range = {.least = 0, .most = 1 << 20},
        .help = "Encoders: number of outputs of a classifier of the first token (0: no classifier)"},
       {.json = "alibi.labels"}},
      {{ALIBI_FIELD("final_norm", transformer.head.final_norm), .help = "The last block is followed by a norm"},
       {.json = "alibi.final_norm", .if_absent = true}},
      {{ALIBI_FIELD("tied", transformer.head.tied), .help = "The embedding is the output projection too"},
       {.json = "alibi.tied"}},
      {{ALIBI_FIELD("normalized_head", transformer.head.normalized),
        .help = "The rows of an output projection of its own have length 1"},
       {.json = "alibi.normalized_head"}},
      {{ALIBI_FIELD("logit_scale", transformer.head.logit_scale), .range = {.above = 0, .most = 1e6},
        .help = "Factor of the logits"},
       {.json = "alibi.logit_scale"}},
      {{ALIBI_FIELD("embedding_norm", transformer.embedding.norm), .help = "The embeddings are normalized"},
       {.json = "alibi.embedding_norm"}},
      {{ALIBI_FIELD("softmax_scale", transformer.attention.softmax_scale), .range = {.least = 0, .most = 1e6},
        .help = "Factor of the scores of attention (0 selects 1 / sqrt(head_dim))"},
       {.json = "alibi.softmax_scale"}},
      {{ALIBI_FIELD("clip_qkv", transformer.attention.clip_qkv), .range = {.least = 0, .most = 1e6},
        .help = "Largest magnitude of queries, keys and values (0 does not limit them)"},
       {.json = "alibi.clip_qkv"}},
      {{ALIBI_FIELD("qk_norm", transformer.attention.qk_norm), .help = "Queries and keys are normalized over all heads",
        .rare = true},
       {.json = "alibi.qk_norm", .offered = true}},
      {{ALIBI_FIELD("qk_norm_per_head", transformer.attention.qk_norm_per_head),
        .help = "With qk_norm, queries and keys are normalized over each head by itself", .rare = true},
       {.json = "alibi.qk_norm_per_head", .offered = true}},
      {{ALIBI_FIELD("qk_norm_eps", transformer.attention.qk_norm_eps), .range = {.least = 0, .below = 1},
        .help = "Constant added to the variance in norms of queries and keys (0 selects norm_eps)"},
       {.json = "alibi.qk_norm_eps"}},
      {{ALIBI_FIELD("sinks", transformer.attention.sinks),
        .help = "Each head has a learned sink: a logit that takes a share of the attention weight, without a value",
        .rare = true},
       {.json = "alibi.sinks", .offered = true}},
      {{ALIBI_FIELD("ssmax", transformer.attention.ssmax), .range = {.least = 0, .most = 100},
        .help = "Scalable-Softmax: scores are multiplied by s log(keys), with a learned s that starts here (0: plain "
                "softmax)",
        .rare = true},
       {.json = "alibi.ssmax", .offered = true}},
      {{ALIBI_FIELD("output_gate", transformer.attention.output_gate),
        .help = "The output of attention is multiplied by the sigmoid of a projection of the layer's normalized input",
        .rare = true},
       {.json = "alibi.output_gate", .offered = true}},
      {{ALIBI_FIELD("canon_kernel", transformer.attention.canon_kernel), .range = {.least = 0, .most = 16},
        .help = "Width of a causal depthwise convolution that is added to the input of attention, as Canon-A (0: none)",
        .rare = true},
       {.json = "alibi.canon_kernel", .offered = true}},
      {{ALIBI_FIELD("nope_layer_interval", transformer.attention.nope_layer_interval),
        .range = {.least = 0, .most = 65535},
        .help = "Every N-th layer has no positions, neither a rotation nor a bias (0: all layers have positions)",
        .rare = true},
       {.json = "alibi.nope_layer_interval", .offered = true}},
      {{ALIBI_FIELD("nope_heads", transformer.attention.nope_heads), .range = {.least = 0, .most = 65535},
        .help = "ALiBi and rotary: the last N heads have no positions, neither a rotation nor a bias", .rare = true},
       {.json = "alibi.nope_heads", .offered = true}},
      {{ALIBI_FIELD("dropout", transformer.block.dropout), .range = kRate,
        .help = "Dropout rate after the attention and the feed-forward layer, in training"},
       {.json = "resid_pdrop", .if_absent = 0.0, .training_only = true}},
      {{ALIBI_FIELD("attention_dropout", transformer.attention.dropout), .range = kRate,
        .help = "Dropout rate of attention weights, in training"},
       {.json = "alibi.attention_dropout", .if_absent = 0.0, .training_only = true}},
      {{ALIBI_FIELD("activation_dropout", transformer.block.activation_dropout), .range = kRate,
        .help = "Dropout rate inside the feed-forward layer, in training"},
       {.json = "alibi.activation_dropout", .if_absent = 0.0, .training_only = true}},
      {{ALIBI_FIELD("embedding_dropout", transformer.embedding.dropout), .range = kRate,
        .help = "Dropout rate of the embeddings, after positions are added, in training"},
       {.json = "emb_pdrop", .if_absent = 0.0, .training_only = true}},
      {{ALIBI_FIELD("initialization", transformer.initialization),
        .help = "Initialization of the parameters before training", .changes_result = false},
       {}},
      {{ALIBI_FIELD("causal", transformer.attention.causal),
        .help = "Causal attention (without it the model is an encoder that predicts masked tokens)"},
       {.json = "alibi.causal", .offered = true}},
      {{ALIBI_FIELD("bidirectional", transformer.attention.bidirectional),
        .help = "ALiBi encoders: bias of keys before and after the query", .rare = true},
       {.json = "alibi.bidirectional", .offered = true}},
      {{ALIBI_FIELD("sliding_window", transformer.attention.sliding_window), .range = {.least = 0, .most = kLongest},
        .help = "Sliding-window attention: each token sees N tokens, itself included (0 disables the window)"},
       {.json = "alibi.window", .offered = true}},
      {{ALIBI_FIELD("full_attention_interval", transformer.attention.full_attention_interval),
        .range = {.least = 0, .most = 65535},
        .help = "Every N-th layer sees all keys, whatever the sliding window of the others (0: all have the window)",
        .rare = true},
       {.json = "alibi.full_attention_interval", .offered = true}},
      {{ALIBI_FIELD("tolerance", transformer.attention.tolerance), .range = {.least = 0, .below = 1},
        .help = "Maximum share of the attention weight that skipped keys have, if the bias falls (0 visits every key)",
        .rare = true},
       {.offered = true}},
  };
}

/// With the fields of position methods at the end.
const std::vector<ConfigField>& all_fields() {
  static const auto& fields = *[] {  // never destroyed: models may be made while main() returns
    auto* const all = new std::vector<ConfigField>(shared_fields());
    for (const PositionMethod& method : position_methods()) {
      for (ConfigField field : method.fields) {
        field.more.method = method.name;
        all->push_back(field);
      }
    }
    return all;
  }();
  return fields;
}

const std::vector<ConfigField>& offered_fields() {
  static const auto& fields = *[] {
    auto* const some = new std::vector<ConfigField>(all_fields());
    std::erase_if(*some, [](const ConfigField& field) { return !field.more.offered; });
    return some;
  }();
  return fields;
}

}  // namespace

std::span<const ConfigField> config_fields() { return all_fields(); }

const ConfigField* OfferedFields::begin() { return offered_fields().data(); }
const ConfigField* OfferedFields::end() { return offered_fields().data() + offered_fields().size(); }

OptionValue ConfigField::checked(const OptionValue& given) const {
  const OptionValue kind = get(LanguageModelConfig());
  const auto* whole = std::get_if<int64_t>(&given);
  const OptionValue value = whole && std::holds_alternative<double>(kind) ? static_cast<double>(*whole) : given;
  check_usage(value.index() == kind.index(), "[config] {} is {}, expected a value like {}", name,
              formats::text_of(value), formats::text_of(kind));
  check_usage(formats::is_in(range, value), "[config] {} is {}, expected {}", name, formats::text_of(value),
              formats::text_of(range));
  const auto* choice = std::get_if<std::string>(&value);
  check_usage(!choice || std::find(choices.begin(), choices.end(), *choice) != choices.end(),
              "[config] {} is '{}'; choose from {}", name, formats::text_of(value), fmt::join(choices, ", "));
  return value;
}

}  // namespace alibi::model
