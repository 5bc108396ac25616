#include "models.h"

#include "text/word_tokenizer.h"

namespace alibi::fuzz {
namespace {

std::shared_ptr<const Tokenizer> words() {
  return std::make_shared<text::WordTokenizer>(
      std::vector<text::WordCount>{{"the", 5}, {"cat", 2}, {"sat", 1}, {"on", 1}});
}

}  // namespace

std::vector<LanguageModelConfig> small_configs() {
  LanguageModelConfig base = preset("tiny");
  base.vocab_size = words()->vocab_size();
  base.transformer.layers = 1;
  base.transformer.d_model = 4;
  base.transformer.attention.heads = 2;
  base.transformer.block.dropout = 0;
  std::vector<LanguageModelConfig> all;
  for (const std::string& name : position_names()) all.push_back(with_position(base, position_from(name), 8));
  all.push_back(with_position(base, Position::rotary + Position::alibi, 8));
  TransformerConfig& gated = all[2].transformer;
  gated.block.activation = Activation::swiglu;
  gated.block.norm = Norm::rms_norm;
  gated.attention.kv_heads = 1;
  TransformerConfig& biased = all[3].transformer;
  biased.block.bias = true;
  biased.block.activation = Activation::relu;
  biased.block.dropout = 0.1f;
  all[1].adaptive = AdaptiveConfig{.cutoffs = {2, 5}, .factor = 2};
  return all;
}

LanguageModel small_model(const LanguageModelConfig& config) { return LanguageModel(config, 1, words()); }

}  // namespace alibi::fuzz
