// Models of well-known sizes.
#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"
#include "model/position.h"

namespace alibi {
namespace {

struct Preset {
  const char* name;
  int layers, d_model, heads;
};

// small, base and medium follow the sizes of GPT (base has the shape of GPT-2 124M). tiny trains in a minute on two
// cores. paper-1.3b is the large model of the ALiBi paper (section 5), of which little more than the shape was
// published.
constexpr Preset presets[] = {
    {"tiny", 4, 128, 4},      {"small", 6, 512, 8},    {"base", 12, 768, 12},
    {"medium", 24, 1024, 16}, {"large", 24, 1536, 16}, {"paper-1.3b", 25, 2048, 16},
};
constexpr const char* wikitext103_name = "wikitext103";

LanguageModelConfig gpt_like(const Preset& size) {
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.layers = size.layers;
  t.d_model = size.d_model;
  t.attention.heads = size.heads;
  t.block.expansion = 4;
  t.block.dropout = 0;
  t.block.bias = false;
  t.head.final_norm = true;
  return config;
}

/// The paper's model of WikiText-103, fairseq's transformer_lm_wiki103 (docs/explanation/recipe.md).
LanguageModelConfig wikitext103() {
  LanguageModelConfig config;
  TransformerConfig& t = config.transformer;
  t.layers = 16;
  t.d_model = 1024;
  t.attention.heads = 8;
  t.block.expansion = 4;
  t.block.dropout = t.embedding.dropout = 0.3f;
  t.attention.dropout = t.block.activation_dropout = 0.1f;
  t.block.activation = Activation::relu;
  t.block.bias = true;
  t.head.final_norm = false;
  t.attention.t5_rate_factor = 1;
  t.initialization = Initialization::fairseq;
  config.vocab_size = 267744;
  config.transformer.embedding.scale = 32;  // sqrt(d_model)
  config.adaptive = AdaptiveConfig{{20000, 60000}, 4, 0.2f};
  return config;
}

}  // namespace

LanguageModelConfig preset(std::string_view name) {
  for (const Preset& candidate : presets) {
    if (name == candidate.name) return gpt_like(candidate);
  }
  if (name == wikitext103_name) return wikitext103();
  fail_usage("[config] there is no preset called '{}'; choose from {}", name, fmt::join(preset_names(), ", "));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& candidate : presets) names.emplace_back(candidate.name);
  names.emplace_back(wikitext103_name);
  return names;
}

LanguageModelConfig with_position(LanguageModelConfig config, Position position, int64_t train_length) {
  config.transformer.position = position;
  config.train_length = train_length;
  config.transformer.embedding.max_length = 0;
  const model::Positions positions(config.transformer);
  positions.fit(config.transformer, train_length);
  const bool scaled = positions.input->scales_embeddings() || config.adaptive.has_value();
  config.transformer.embedding.scale = scaled ? std::sqrt(static_cast<float>(config.transformer.d_model)) : 1.0f;
  return config;
}

LanguageModelConfig with_dropout(LanguageModelConfig config, float dropout) {
  TransformerConfig& t = config.transformer;
  t.block.dropout = dropout;
  if (t.embedding.dropout > 0) t.embedding.dropout = dropout;
  if (dropout > 0) return config;
  t.attention.dropout = t.block.activation_dropout = 0;
  if (config.adaptive) config.adaptive->dropout = 0;
  return config;
}

LanguageModelConfig with_vocab_size(LanguageModelConfig config, int tokens) {
  config.vocab_size = config.transformer.attention.causal ? tokens : tokens + 1;
  if (config.adaptive) std::erase_if(config.adaptive->cutoffs, [&](int64_t cutoff) { return cutoff >= tokens; });
  return config;
}

}  // namespace alibi
