#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"

namespace alibi {
namespace {

constexpr int largest_extent = 1 << 20;  // keeps every product of two extents far from overflow

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  check_usage(value >= low && value <= high, "[config] {} is {}, expected {} to {}", field, value, low, high);
}

struct Preset {
  const char* name;
  int layers, d_model, heads;
};

// small, base and medium follow the GPT ladder (base has the shape of GPT-2 124M); tiny trains in a minute on two
// cores.
constexpr Preset presets[] = {
    {"tiny", 4, 128, 4}, {"small", 6, 512, 8}, {"base", 12, 768, 12}, {"medium", 24, 1024, 16}, {"large", 24, 1536, 16},
};

}  // namespace

void TransformerConfig::validate() const {
  check_range("layers", layers, 0, 10000);
  check_range("d_model", d_model, 1, largest_extent);
  check_range("heads", heads, 1, 4096);
  check_usage(d_model % heads == 0, "[config] d_model is {}, expected a multiple of heads, {}", d_model, heads);
  check_range("head_dim (d_model / heads)", head_dim(), 1, 256);
  check_range("kv_heads", key_heads(), 1, heads);
  check_usage(heads % key_heads() == 0, "[config] heads is {}, expected a multiple of kv_heads, {}", heads,
              key_heads());
  check_usage(expansion > 0 && expansion <= 64 && ffn_dim() >= 1,
              "[config] expansion is {}, expected above 0, at most 64", expansion);
  check_usage(dropout >= 0 && dropout < 1, "[config] dropout is {}, expected at least 0 and below 1", dropout);
  check_usage(attention_dropout >= 0 && attention_dropout < 1,
              "[config] attention_dropout is {}, expected at least 0 and below 1", attention_dropout);
  check_usage(activation_dropout >= 0 && activation_dropout < 1,
              "[config] activation_dropout is {}, expected at least 0 and below 1", activation_dropout);
  check_usage(embedding_dropout >= 0 && embedding_dropout < 1,
              "[config] embedding_dropout is {}, expected at least 0 and below 1", embedding_dropout);
  check_usage(std::isfinite(alibi_bias_max) && alibi_bias_max > 0, "[config] alibi_bias_max is {}, expected above 0",
              alibi_bias_max);
  check_usage(norm_eps > 0 && norm_eps < 1, "[config] norm_eps is {}, expected between 0 and 1", norm_eps);
  check_usage(tolerance >= 0 && tolerance < 1, "[config] tolerance is {}, expected at least 0 and below 1", tolerance);
  if (position == Position::rotary) {
    check_usage(head_dim() % 2 == 0, "[config] rotary positions need an even head_dim, found {}", head_dim());
    check_usage(rotary_theta > 1, "[config] rotary_theta is {}, expected above 1", rotary_theta);
  }
  if (position == Position::t5) {
    check_range("t5_buckets", t5_buckets, causal ? 2 : 4, 4096);
    check_range("t5_max_distance", t5_max_distance, t5_buckets, largest_extent);
  }
  if (position == Position::learned) check_range("max_length (learned positions)", max_length, 1, int64_t{1} << 31);
}

void LanguageModelConfig::validate() const {
  transformer.validate();
  check_range("vocab_size", vocab_size, 1, 1 << 28);
  check_range("train_length", train_length, 0, int64_t{1} << 40);
  check_usage(std::isfinite(embedding_scale) && embedding_scale > 0,
              "[config] embedding_scale is {}, expected a positive number", embedding_scale);
}

LanguageModelConfig preset(std::string_view name) {
  for (const Preset& candidate : presets) {
    if (name != candidate.name) continue;
    LanguageModelConfig config;
    TransformerConfig& t = config.transformer;
    t.layers = candidate.layers;
    t.d_model = candidate.d_model;
    t.heads = candidate.heads;
    t.expansion = 4;
    t.dropout = 0;
    t.bias = false;
    t.final_norm = true;
    return config;
  }
  fail_usage("[config] there is no preset called '{}'; choose from {}", name, fmt::join(preset_names(), ", "));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& candidate : presets) names.emplace_back(candidate.name);
  return names;
}

LanguageModelConfig with_position(LanguageModelConfig config, Position position, int64_t train_length) {
  config.transformer.position = position;
  config.train_length = train_length;
  config.transformer.max_length = position == Position::learned ? train_length : 0;
  config.embedding_scale =
      position == Position::sinusoidal ? std::sqrt(static_cast<float>(config.transformer.d_model)) : 1.0f;
  return config;
}

}  // namespace alibi
