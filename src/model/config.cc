#include "core/check.h"
#include "formats/options.h"
#include "model/check_config.h"
#include "model/config_fields.h"
#include "model/parameters.h"
#include "model/position.h"

namespace alibi {
namespace {

const model::ConfigFields& own_words() {
  static const model::ConfigFields words{[](std::string_view field) { return std::string(field); },
                                         [](const std::string& problem) { fail_usage("[config] {}", problem); }};
  return words;
}

/// Checks the range of each field.
void check_ranges(const LanguageModelConfig& config, const model::ConfigFields& fields) {
  for (const model::ConfigField& field : model::config_fields()) {
    if (!field.belongs_to(config.transformer.position)) continue;
    const OptionValue value = field.get(config);
    const auto* list = std::get_if<std::vector<double>>(&value);
    const std::vector<OptionValue> all =
        list ? std::vector<OptionValue>(list->begin(), list->end()) : std::vector{value};
    for (const OptionValue& one : all) {
      fields.expect(formats::is_in(field.range, one), field.name, formats::text_of(one), formats::text_of(field.range));
    }
  }
}

/// Whether the last heads of the model can be without positions.
bool can_leave_out_heads(const TransformerConfig& t) {
  const AttentionConfig& a = t.attention;
  const bool is_supported = t.position.input.empty() && (t.position.bias.empty() || t.position.bias == "alibi") &&
                            !(t.position.bias.empty() && t.position.rotation.empty());
  const int kv_heads = a.kv_heads > 0 ? a.kv_heads : a.heads;
  return is_supported && a.nope_heads < a.heads && int64_t{a.nope_heads} * kv_heads % a.heads == 0 &&
         a.slope_training == SlopeTraining::fixed && (a.causal || a.bidirectional == Bidirectional::symmetric);
}

/// Checks conditions on several fields.
void check_transformer(const TransformerConfig& t, const model::ConfigFields& fields) {
  fields.expect(t.d_model % t.attention.heads == 0, "d_model", t.d_model,
                fmt::format("a multiple of {}, {}", fields.name("heads"), t.attention.heads));
  fields.refuse_if(t.head_dim() > 256, fmt::format("{} / {} is {}, expected a head_dim of 1 to 256",
                                                   fields.name("d_model"), fields.name("heads"), t.head_dim()));
  fields.range("kv_heads", t.key_heads(), 1, t.attention.heads);
  fields.expect(t.attention.heads % t.key_heads() == 0, "heads", t.attention.heads,
                fmt::format("a multiple of {}, {}", fields.name("kv_heads"), t.key_heads()));
  fields.refuse_if(!t.attention.qk_norm && (t.attention.qk_norm_per_head || t.attention.qk_norm_eps > 0),
                   fmt::format("{} is false, expected true where {} or {} is set", fields.name("qk_norm"),
                               fields.name("qk_norm_per_head"), fields.name("qk_norm_eps")));
  fields.refuse_if(t.attention.canon_kernel > 0 && (!t.attention.causal || t.d_model % 2 != 0),
                   fmt::format("{} is {}, expected 0 for an encoder or an odd {}", fields.name("canon_kernel"),
                               t.attention.canon_kernel, fields.name("d_model")));
  fields.refuse_if(t.attention.ssmax > 0 && (!t.attention.causal || (t.attention.clip_qkv > 0 && !t.attention.qk_norm)),
                   fmt::format("{} is {}, expected 0 for an encoder, and with {} and no {}", fields.name("ssmax"),
                               t.attention.ssmax, fields.name("clip_qkv"), fields.name("qk_norm")));
  fields.expect(t.ffn_dim() >= 1, "expansion", t.block.expansion, fmt::format("at least {}", 0.5 / t.d_model));
  model::Positions(t).check(fields);
  fields.refuse_if(
      t.attention.nope_layer_interval > 0 && t.position.rotation.empty() && t.position.bias.empty(),
      fmt::format("{} is {}, expected 0 for {} positions, which are neither a rotation nor a bias",
                  fields.name("nope_layer_interval"), t.attention.nope_layer_interval, name_of(t.position)));
  fields.refuse_if(
      t.attention.nope_heads > 0 && !can_leave_out_heads(t),
      fmt::format("{} is {}, expected 0, or for alibi, rotary and rotary+alibi less than {} {} and whole "
                  "groups of them, with fixed slopes that do not differ between directions",
                  fields.name("nope_heads"), t.attention.nope_heads, t.attention.heads, fields.name("heads")));
  fields.refuse_if(t.head.normalized && t.head.tied, fmt::format("{} is true, expected false where {} is",
                                                                 fields.name("normalized_head"), fields.name("tied")));
}

}  // namespace

void model::check_config(const LanguageModelConfig& config, const model::ConfigFields& fields) {
  check_ranges(config, fields);
  check_transformer(config.transformer, fields);
  const HeadConfig& head = config.transformer.head;
  fields.refuse_if(!head.predicts && config.transformer.attention.causal,
                   fmt::format("{} is false, expected true for a decoder", fields.name("predicts")));
  fields.refuse_if(head.predicts && head.labels > 0,
                   fmt::format("{} is {}, expected 0 where {} is true", fields.name("labels"), head.labels,
                               fields.name("predicts")));
  if (!config.adaptive) return;
  const AdaptiveConfig& adaptive = *config.adaptive;
  fields.refuse_if(
      !head.predicts || config.transformer.embedding.token_types > 0,
      fmt::format("{} is {} and {} is {}, expected true and 0 for an adaptive vocabulary", fields.name("predicts"),
                  head.predicts, fields.name("token_types"), config.transformer.embedding.token_types));
  fields.refuse_if(!head.tied || head.logit_scale != 1,
                   fmt::format("{} is {} and {} is {}, expected true and 1 for an adaptive vocabulary",
                               fields.name("tied"), head.tied, fields.name("logit_scale"), head.logit_scale));
  fields.range("adaptive.factor", adaptive.factor, 1, model::largest_extent);
  fields.expect(adaptive.dropout >= 0 && adaptive.dropout < 1, "adaptive.dropout", adaptive.dropout,
                "at least 0 and below 1");
  fields.refuse_if(adaptive.cutoffs.size() > 62, fmt::format("{} are {} numbers, expected at most 62",
                                                             fields.name("adaptive.cutoffs"), adaptive.cutoffs.size()));
  int64_t before = 0;
  for (const int64_t cutoff : adaptive.cutoffs) {
    fields.refuse_if(
        cutoff <= before || cutoff >= config.vocab_size,
        fmt::format("{} are {}, expected to rise from above 0 to below {}, {}", fields.name("adaptive.cutoffs"),
                    fmt::join(adaptive.cutoffs, ", "), fields.name("vocab_size"), config.vocab_size));
    before = cutoff;
  }
  fields.refuse_if(
      config.bands().back().width <= 0,
      fmt::format("{} {} and {} {} leave no width for band {}", fields.name("d_model"), config.transformer.d_model,
                  fields.name("adaptive.factor"), adaptive.factor, adaptive.cutoffs.size()));
}

void TransformerConfig::validate() const {
  LanguageModelConfig config;
  config.transformer = *this;
  config.validate();
}

void LanguageModelConfig::validate() const { model::check_config(*this, own_words()); }

int64_t TransformerConfig::position_parameter_count() const { return model::elements_of(model::position_specs(*this)); }

int64_t TransformerConfig::parameter_count() const { return model::elements_of(model::parameter_specs(*this)); }

std::optional<int32_t> LanguageModelConfig::mask_token() const {
  return transformer.attention.causal || !transformer.head.predicts ? std::nullopt : std::optional(vocab_size - 1);
}

std::vector<VocabularyBand> LanguageModelConfig::bands() const {
  std::vector<VocabularyBand> result{{0, vocab_size, transformer.d_model}};
  if (!adaptive) return result;
  for (const int64_t cutoff : adaptive->cutoffs) {
    result.back().words = cutoff - result.back().first;
    result.push_back({cutoff, vocab_size - cutoff, result.back().width / adaptive->factor});
  }
  return result;
}

int64_t LanguageModelConfig::parameter_count() const { return model::elements_of(model::parameter_specs(*this)); }

}  // namespace alibi
