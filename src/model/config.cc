#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"
#include "model/check_config.h"
#include "model/parameters.h"
#include "model/position.h"

namespace alibi {
namespace {

const ConfigFields& own_words() {
  static const ConfigFields words{[](std::string_view field) { return std::string(field); },
                                  [](const std::string& problem) { fail_usage("[config] {}", problem); }};
  return words;
}

}  // namespace

void check_config(const TransformerConfig& t, const ConfigFields& fields) {
  fields.range("layers", t.layers, 0, 10000);
  fields.range("d_model", t.d_model, 1, largest_extent);
  fields.range("heads", t.heads, 1, 4096);
  fields.expect(t.d_model % t.heads == 0, "d_model", t.d_model,
                fmt::format("a multiple of {}, {}", fields.name("heads"), t.heads));
  fields.refuse_if(t.head_dim() > 256, fmt::format("{} / {} is {}, expected a head_dim of 1 to 256",
                                                   fields.name("d_model"), fields.name("heads"), t.head_dim()));
  fields.range("kv_heads", t.key_heads(), 1, t.heads);
  fields.expect(t.heads % t.key_heads() == 0, "heads", t.heads,
                fmt::format("a multiple of {}, {}", fields.name("kv_heads"), t.key_heads()));
  fields.expect(t.expansion > 0 && t.expansion <= 64 && t.ffn_dim() >= 1, "expansion", t.expansion,
                "above 0, at most 64");
  fields.rate("dropout", t.dropout);
  fields.rate("attention_dropout", t.attention_dropout);
  fields.rate("activation_dropout", t.activation_dropout);
  fields.rate("embedding_dropout", t.embedding_dropout);
  fields.expect(std::isfinite(t.alibi_bias_max) && t.alibi_bias_max > 0, "alibi_bias_max", t.alibi_bias_max, "above 0");
  fields.expect(t.norm_eps > 0 && t.norm_eps < 1, "norm_eps", t.norm_eps, "between 0 and 1");
  fields.expect(t.tolerance >= 0 && t.tolerance < 1, "tolerance", t.tolerance, "at least 0 and below 1");
  fields.range("window", t.window, 0, int64_t{1} << 40);
  make_position(t)->check(fields);
}

void check_config(const LanguageModelConfig& config, const ConfigFields& fields) {
  check_config(config.transformer, fields);
  fields.range("vocab_size", config.vocab_size, 1, 1 << 28);
  fields.range("train_length", config.train_length, 0, int64_t{1} << 40);
  fields.expect(std::isfinite(config.embedding_scale) && config.embedding_scale > 0, "embedding_scale",
                config.embedding_scale, "a positive number");
  if (!config.adaptive) return;
  const AdaptiveConfig& adaptive = *config.adaptive;
  fields.range("adaptive.factor", adaptive.factor, 1, largest_extent);
  fields.rate("adaptive.dropout", adaptive.dropout);
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

void TransformerConfig::validate() const { check_config(*this, own_words()); }

void LanguageModelConfig::validate() const { check_config(*this, own_words()); }

int64_t TransformerConfig::position_parameter_count() const { return elements_of(position_specs(*this)); }

int64_t TransformerConfig::parameter_count() const { return elements_of(parameter_specs(*this)); }

std::optional<int32_t> LanguageModelConfig::mask_token() const {
  return transformer.causal ? std::nullopt : std::optional(vocab_size - 1);
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

int64_t LanguageModelConfig::parameter_count() const { return elements_of(parameter_specs(*this)); }

}  // namespace alibi
