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
      {{FIELD(T, position), .help = "How the model learns where a token stands"},
       {.part = "position", .json = "alibi.position", .json_by_hand = true}},
      {{FIELD(T, layers), .group = "Model and position", .range = {.least = 0, .most = 10'000},
        .help = "Blocks of the transformer", .default_text = "the preset's"},
       {.part = "block", .json = "n_layers", .required = true, .offered = true}},
      {{FIELD(T, d_model), .range = {.least = 1, .most = kLargest}, .help = "Width of the model",
        .default_text = "the preset's"},
       {.part = "block", .json = "d_model", .required = true, .offered = true}},
      {{FIELD(T, heads), .range = {.least = 1, .most = 4096}, .help = "Attention heads",
        .default_text = "the preset's"},
       {.part = "attention", .json = "n_heads", .required = true, .offered = true}},
      {{FIELD(T, kv_heads), .range = {.least = 0, .most = 4096},
        .help = "Heads of keys and values; 0: as many as attention heads"},
       {.part = "attention", .json = "attn_config.kv_n_heads", .json_by_hand = true}},
      {{FIELD(T, expansion), .range = {.above = 0, .most = 64}, .help = "Width of the feed-forward layer / d_model",
        .changes_result = false},  // but ffn_dim, which follows from it, does
       {.part = "block", .json = "expansion_ratio", .json_by_hand = true}},
      {{FIELD(T, activation), .help = "Of the feed-forward layer"},
       {.part = "block", .json = "alibi.activation", .json_by_hand = true}},
      {{FIELD(T, norm), .help = "Before attention and feed-forward layer"},
       {.part = "block", .json = "norm_type", .json_by_hand = true}},
      {{FIELD(T, norm_eps), .range = {.above = 0, .below = 1}, .help = "Added to the variance in a norm"},
       {.part = "block", .json = "norm_eps", .json_by_hand = true}},
      {{FIELD(T, bias), .help = "Biases in linear layers and layer norms"},
       {.part = "block", .json = "no_bias", .json_by_hand = true}},
      {{FIELD(L, vocab_size), .range = {.least = 1, .most = 1 << 28},
        .help = "Different tokens, an encoder's mask too"},
       {.part = "embedding", .json = "vocab_size", .required = true}},
      {{FIELD(L, train_length), .range = {.least = 0, .most = kLongest}, .help = "Length that it was last trained at",
        .changes_result = false},  // the option `length` does
       {.part = "position", .json = "alibi.train_length", .json_by_hand = true}},
      {{FIELD(L, embedding_scale), .range = {.above = 0, .most = 1e6},
        .help = "Factor of the token embeddings, the same with every method", .default_text = "the preset's"},
       {.part = "embedding", .json = "alibi.embedding_scale", .if_absent = 1.0, .offered = true}},
      {{FIELD(T, final_norm), .help = "A norm after the last block"},
       {.part = "head", .json = "alibi.final_norm", .if_absent = true}},
      {{FIELD(T, dropout), .range = kRate, .help = "After attention and feed-forward layer, in training"},
       {.part = "block", .json = "resid_pdrop", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, attention_dropout), .range = kRate, .help = "Of attention weights, in training"},
       {.part = "attention", .json = "alibi.attention_dropout", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, activation_dropout), .range = kRate, .help = "Inside the feed-forward layer, in training"},
       {.part = "block", .json = "alibi.activation_dropout", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, embedding_dropout), .range = kRate, .help = "Of the input, after positions were added, in training"},
       {.part = "embedding", .json = "emb_pdrop", .if_absent = 0.0, .training_only = true}},
      {{FIELD(T, initialization), .help = "What the parameters are before training", .changes_result = false},
       {.part = "block"}},
      {{FIELD(T, causal),
        .help = "false: an encoder, which sees the text on both sides and predicts tokens that are masked"},
       {.part = "attention", .json = "alibi.causal", .offered = true}},
      {{FIELD(T, bidirectional), .help = "alibi, encoders: what looks back, and what ahead"},
       {.part = "attention", .json = "alibi.bidirectional", .offered = true}},
      {{FIELD_CALLED("bias_max", T, alibi_bias_max), .range = {.above = 0, .most = 1e6},
        .help = "alibi: slopes go down to 2^-X"},
       {.part = "attention",
        .position = kAlibi,
        .json = "attn_config.alibi_bias_max",
        .offered = true,
        .recorded_as = "alibi_bias_max"}},
      {{FIELD_CALLED("slopes", T, alibi_slopes), .range = {.least = 0},
        .help = "alibi: instead, that of each head, separated by commas, or one for all"},
       {.part = "attention", .position = kAlibi, .json = "alibi.slopes", .offered = true}},
      {{FIELD(T, slope_training),
        .help = "alibi: whether slopes are learned, by each layer, from these or from random ones"},
       {.part = "attention", .position = kAlibi, .json = "alibi.slope_training", .offered = true}},
      {{FIELD(T, tolerance), .range = kRate,
        .help = "alibi: bound on the attention weight of keys that are not visited; 0: all are"},
       {.part = "attention", .position = kAlibi, .offered = true}},
      {{FIELD(T, window), .range = {.least = 0, .most = kLongest},
        .help = "Attention sees keys at a distance below it alone; 0: all keys"},
       {.part = "attention", .json = "alibi.window", .offered = true}},
      {{FIELD(T, t5_buckets), .range = {.least = 2, .most = 4096}, .help = "t5: different distances"},
       {.part = "attention", .position = kT5, .json = "alibi.t5_buckets", .always_written = true, .offered = true}},
      {{FIELD(T, t5_max_distance), .range = {.least = 1, .most = kLargest},
        .help = "t5: distance from which all are one", .default_text = "a quarter of the training length"},
       {.part = "attention",
        .position = kT5,
        .json = "alibi.t5_max_distance",
        .always_written = true,
        .offered = true}},
      {{FIELD(T, t5_init), .range = {.least = 0, .most = 100},
        .help = "t5: standard deviation of the table's first values"},
       {.part = "attention", .position = kT5, .json = "alibi.t5_init", .always_written = true, .offered = true}},
      {{FIELD(T, t5_rate_factor), .range = {.least = 0, .most = 1e6},
        .help = "t5: learning rate of the table, as a multiple of that of the rest",
        .default_text = "64; wikitext103: 1"},
       {.part = "attention",
        .position = kT5,
        .json = "alibi.t5_rate_factor",
        .always_written = true,
        .before = 1.0,
        .offered = true}},
      {{FIELD(T, rotary_theta), .range = {.above = 1, .most = 1e12}, .help = "rotary: base of the wavelengths"},
       {.part = "attention", .position = Position::rotary, .json = "alibi.rotary_theta", .always_written = true}},
      {{FIELD(T, max_length), .range = {.least = 1, .most = 0x1p31}, .help = "learned: rows of the table",
        .default_text = "the training length"},
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
