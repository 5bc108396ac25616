// The one declaration of each field of a model's configuration. Whatever reads, writes, checks, offers or shows fields
// goes through this table; what config.json says in MPT's own way (`json_by_hand`) is in model/mpt_config.cc too.
#include "alibi/model_options.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "formats/options.h"
#include "model/check_config.h"

namespace alibi {
namespace {

template <auto member, class Config>
auto& value_in(Config& config) {
  if constexpr (std::is_same_v<option_access::Struct<member>, TransformerConfig>) {
    return config.transformer.*member;
  } else {
    return config.*member;
  }
}

template <auto member>
OptionValue get_field(const LanguageModelConfig& config) {
  using Value = option_access::Value<member>;
  const Value& value = value_in<member>(config);
  if constexpr (std::is_enum_v<Value>) {
    return std::string(enum_name(value));
  } else if constexpr (std::is_same_v<Value, std::vector<float>>) {
    return std::vector<double>(value.begin(), value.end());
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<Value>) {
    return int64_t{value};
  } else {
    return double{value};
  }
}

template <auto member>
void set_field(LanguageModelConfig& config, const OptionValue& given) {
  using Value = option_access::Value<member>;
  Value& value = value_in<member>(config);
  if constexpr (std::is_enum_v<Value>) {
    value = enum_value<Value>(std::get<std::string>(given)).value();
  } else if constexpr (std::is_same_v<Value, std::vector<float>>) {
    const auto& numbers = std::get<std::vector<double>>(given);
    value.assign(numbers.begin(), numbers.end());
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = std::get<bool>(given);
  } else if constexpr (std::is_integral_v<Value>) {
    value = static_cast<Value>(std::get<int64_t>(given));
  } else {
    value = static_cast<Value>(std::get<double>(given));
  }
}

#define FIELD(Holder, member) FIELD_CALLED(#member, Holder, member)
#define FIELD_CALLED(called, Holder, member)                                              \
  .name = (called), .get = get_field<&Holder::member>, .set = set_field<&Holder::member>, \
  .choices = option_access::choices<&Holder::member>()

/// In the order that config.json and help have.
const std::vector<ConfigField>& all_fields() {
  using T = TransformerConfig;
  using L = LanguageModelConfig;
  constexpr OptionRange kRate{.least = 0, .below = 1};
  constexpr double kLongest = 0x1p40, kLargest = model::largest_extent;
  constexpr Position kAlibi = Position::alibi, kT5 = Position::t5;
  static const auto& fields = *new std::vector<ConfigField>{
      // never destroyed: models may be made while main() returns
      {{FIELD(T, position), .help = "Position method"},
       {.part = "position", .json = "alibi.position", .json_by_hand = true}},
      {{FIELD(T, layers), .group = "Model and position", .range = {.least = 0, .most = 10'000},
        .help = "Number of transformer blocks", .default_text = "the preset's"},
       {.part = "block", .json = "n_layers", .required = true, .offered = true}},
      {{FIELD(T, d_model), .range = {.least = 1, .most = kLargest},
        .help = "Width of the model: values per token in the residual stream", .default_text = "the preset's"},
       {.part = "block", .json = "d_model", .required = true, .offered = true}},
      {{FIELD(T, heads), .range = {.least = 1, .most = 4096}, .help = "Number of attention heads",
        .default_text = "the preset's"},
       {.part = "attention", .json = "n_heads", .required = true, .offered = true}},
      {{FIELD(T, kv_heads), .range = {.least = 0, .most = 4096},
        .help = "Number of key/value heads (0 selects as many as attention heads)"},
       {.part = "attention", .json = "attn_config.kv_n_heads", .json_by_hand = true}},
      {{FIELD(T, expansion), .range = {.above = 0, .most = 64},
        .help = "Width of the feed-forward layer divided by d_model",
        .changes_result = false},  // but ffn_dim, which follows from it, does
       {.part = "block", .json = "expansion_ratio", .json_by_hand = true}},
      {{FIELD(T, activation), .help = "Activation function of the feed-forward layer"},
       {.part = "block", .json = "alibi.activation", .json_by_hand = true}},
      {{FIELD(T, norm), .help = "Kind of norm before the attention and the feed-forward layer"},
       {.part = "block", .json = "norm_type", .json_by_hand = true}},
      {{FIELD(T, norm_eps), .range = {.above = 0, .below = 1}, .help = "Constant added to the variance in norms"},
       {.part = "block", .json = "norm_eps", .json_by_hand = true}},
      {{FIELD(T, bias), .help = "Linear layers and layer norms have biases"},
       {.part = "block", .json = "no_bias", .json_by_hand = true}},
      {{FIELD(L, vocab_size), .range = {.least = 1, .most = 1 << 28},
        .help = "Number of different tokens, including the mask token of an encoder"},
       {.part = "embedding", .json = "vocab_size", .required = true}},
      {{FIELD(L, train_length), .range = {.least = 0, .most = kLongest},
        .help = "Training length of the last training run", .changes_result = false},  // the option `length` does
       {.part = "position", .json = "alibi.train_length", .json_by_hand = true}},
      {{FIELD(L, embedding_scale), .range = {.above = 0, .most = 1e6},
        .help = "Factor that multiplies the token embeddings, with every position method",
        .default_text = "the preset's"},
       {.part = "embedding", .json = "alibi.embedding_scale", .if_absent = 1.0, .offered = true}},
      {{FIELD(T, final_norm), .help = "The last block is followed by a norm"},
       {.part = "head", .json = "alibi.final_norm", .if_absent = true}},
      {{FIELD(T, dropout), .range = kRate,
        .help = "Dropout rate after the attention and the feed-forward layer, in training"},
       {.part = "block", .json = "resid_pdrop", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, attention_dropout), .range = kRate, .help = "Dropout rate of attention weights, in training"},
       {.part = "attention", .json = "alibi.attention_dropout", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, activation_dropout), .range = kRate,
        .help = "Dropout rate inside the feed-forward layer, in training"},
       {.part = "block", .json = "alibi.activation_dropout", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, embedding_dropout), .range = kRate,
        .help = "Dropout rate of the embeddings, after positions are added, in training"},
       {.part = "embedding", .json = "emb_pdrop", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, initialization), .help = "Initialization of the parameters before training", .changes_result = false},
       {.part = "block"}},
      {{FIELD(T, causal),
        .help = "Causal attention (false trains an encoder that sees both sides and predicts masked tokens)"},
       {.part = "attention", .json = "alibi.causal", .offered = true}},
      {{FIELD(T, bidirectional), .help = "ALiBi encoders: bias of keys before and after the query"},
       {.part = "attention", .json = "alibi.bidirectional", .offered = true}},
      {{FIELD_CALLED("bias_max", T, alibi_bias_max), .range = {.above = 0, .most = 1e6},
        .help = "ALiBi: exponent of the smallest slope, which is 2^-X"},
       {.part = "attention",
        .position = kAlibi,
        .json = "attn_config.alibi_bias_max",
        .offered = true,
        .recorded_as = "alibi_bias_max"}},
      {{FIELD_CALLED("slopes", T, alibi_slopes), .range = {.least = 0},
        .help =
            "ALiBi: slopes of the heads, separated by commas, or one for all heads; they replace those of --bias-max"},
       {.part = "attention", .position = kAlibi, .json = "alibi.slopes", .offered = true}},
      {{FIELD(T, slope_training),
        .help = "ALiBi: whether each layer trains its slopes; learned_random starts from random slopes"},
       {.part = "attention", .position = kAlibi, .json = "alibi.slope_training", .offered = true}},
      {{FIELD(T, tolerance), .range = kRate,
        .help = "ALiBi: maximum share of the attention weight that skipped keys may have (0 visits every key)"},
       {.part = "attention", .position = kAlibi, .offered = true}},
      {{FIELD(T, window), .range = {.least = 0, .most = kLongest},
        .help = "Sliding-window attention: only keys at a distance below N tokens are visible (0 disables the window)"},
       {.part = "attention", .json = "alibi.window", .offered = true}},
      {{FIELD(T, t5_buckets), .range = {.least = 2, .most = 4096}, .help = "T5: number of distance buckets"},
       {.part = "attention", .position = kT5, .json = "alibi.t5_buckets", .always_written = true, .offered = true}},
      {{FIELD(T, t5_max_distance), .range = {.least = 1, .most = kLargest},
        .help = "T5: distance in tokens from which on all keys share the last bucket",
        .default_text = "a quarter of the training length"},
       {.part = "attention",
        .position = kT5,
        .json = "alibi.t5_max_distance",
        .always_written = true,
        .offered = true}},
      {{FIELD(T, t5_init), .range = {.least = 0, .most = 100},
        .help = "T5: standard deviation of the initial bias table"},
       {.part = "attention", .position = kT5, .json = "alibi.t5_init", .always_written = true, .offered = true}},
      {{FIELD(T, t5_rate_factor), .range = {.least = 0, .most = 1e6},
        .help = "T5: learning rate of the bias table as a multiple of --learning-rate",
        .default_text = "64; wikitext103: 1"},
       {.part = "attention",
        .position = kT5,
        .json = "alibi.t5_rate_factor",
        .always_written = true,
        .before = 1.0,
        .offered = true}},
      {{FIELD(T, rotary_theta), .range = {.above = 1, .most = 1e12},
        .help = "Rotary positions: base of the wavelengths"},
       {.part = "attention", .position = Position::rotary, .json = "alibi.rotary_theta", .always_written = true}},
      {{FIELD(T, max_length), .range = {.least = 1, .most = 0x1p31},
        .help = "Learned positions: number of rows of the table", .default_text = "the training length"},
       {.part = "embedding", .position = Position::learned, .json = "alibi.max_length", .always_written = true}},
  };
  return fields;
}

#undef FIELD
#undef FIELD_CALLED

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

namespace {

const ConfigField& field_called(std::string_view name) {
  for (const ConfigField& field : options_of<LanguageModelConfig>) {
    if (field.name == name) return field;
  }
  fail_usage("[config] there is no option of a model called '{}'", name);
}

}  // namespace

ModelOptions& ModelOptions::set(std::string_view name, const OptionValue& value) {
  values_[std::string(name)] = field_called(name).checked(value);
  return *this;
}

void ModelOptions::unset(std::string_view name) { values_.erase(std::string(name)); }

const OptionValue* ModelOptions::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

void ModelOptions::apply_to(LanguageModelConfig& config) const {
  for (const auto& [name, value] : values_) field_called(name).set(config, value);
}

}  // namespace alibi
