#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"
#include "model/check_config.h"
#include "model/training_buffers.h"

namespace alibi {
namespace {

constexpr int largest_extent = 1 << 20;  // keeps every product of two extents far from overflow

const ConfigWords& own_words() {
  static const ConfigWords words{[](std::string_view field) { return std::string(field); },
                                 [](const std::string& problem) { fail_usage("[config] {}", problem); }};
  return words;
}

class Fields {
 public:
  explicit Fields(const ConfigWords& words) : words_(words) {}

  std::string name(std::string_view field) const { return words_.name(field); }

  template <class Value>
  void expect(bool ok, std::string_view field, const Value& value, const std::string& expected) const {
    if (!ok) words_.refuse(fmt::format("{} is {}, expected {}", name(field), value, expected));
  }
  void refuse_if(bool wrong, const std::string& problem) const {
    if (wrong) words_.refuse(problem);
  }
  void range(std::string_view field, int64_t value, int64_t low, int64_t high) const {
    expect(value >= low && value <= high, field, value, fmt::format("{} to {}", low, high));
  }
  void rate(std::string_view field, float value) const {
    expect(value >= 0 && value < 1, field, value, "at least 0 and below 1");
  }

 private:
  const ConfigWords& words_;
};

}  // namespace

void check_config(const TransformerConfig& t, const ConfigWords& words) {
  const Fields fields(words);
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
  if (t.position == Position::rotary) {
    fields.refuse_if(t.head_dim() % 2 != 0, fmt::format("{} / {} is {}, expected an even head_dim for rotary positions",
                                                        fields.name("d_model"), fields.name("heads"), t.head_dim()));
    fields.expect(t.rotary_theta > 1, "rotary_theta", t.rotary_theta, "above 1");
  }
  if (t.position == Position::t5) {
    fields.range("t5_buckets", t.t5_buckets, t.causal ? 2 : 4, 4096);
    fields.range("t5_max_distance", t.t5_max_distance, t.t5_buckets, largest_extent);
  }
  if (t.position == Position::learned) fields.range("max_length", t.max_length, 1, int64_t{1} << 31);
}

void check_config(const LanguageModelConfig& config, const ConfigWords& words) {
  check_config(config.transformer, words);
  const Fields fields(words);
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

int64_t TransformerConfig::position_parameter_count() const {
  if (position == Position::learned) return max_length * d_model;
  if (position == Position::t5) return int64_t{t5_buckets} * heads;
  return 0;
}

int64_t TransformerConfig::parameter_count() const {
  const int64_t width = d_model, hidden = ffn_dim(), bias_column = bias ? 1 : 0;
  const int64_t norm_vectors = width * (bias && norm == Norm::layer_norm ? 2 : 1);
  const int64_t attention = (qkv_dim(*this) + width) * (width + bias_column);
  const int64_t feed_forward = up_dim(*this) * (width + bias_column) + width * (hidden + bias_column);
  return layers * (2 * norm_vectors + attention + feed_forward) + (final_norm ? norm_vectors : 0) +
         position_parameter_count();
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

int64_t LanguageModelConfig::parameter_count() const {
  const int64_t width = transformer.d_model;
  int64_t count = transformer.parameter_count();
  const std::vector<VocabularyBand> parts = bands();
  for (const VocabularyBand& band : parts) count += band.words * band.width + (adaptive ? width * band.width : 0);
  return count + (static_cast<int64_t>(parts.size()) - 1) * width;  // the rows that stand for the other bands
}

}  // namespace alibi
