#include <algorithm>

#include "alibi/train.h"

namespace alibi {
namespace {

double number(int64_t count) { return static_cast<double>(count); }

/// Mean number of embedding and output parameters that a token is multiplied by.
double vocabulary_products(const LanguageModelConfig& config, std::span<const int32_t> tokens) {
  const std::vector<VocabularyBand> bands = config.bands();
  const int64_t width = config.transformer.d_model, others = static_cast<int64_t>(bands.size()) - 1;
  const double head = number((bands.front().words + others) * width);
  if (!config.adaptive) return head;
  std::vector<int64_t> met(bands.size());
  for (const int32_t token : tokens) {
    const auto beyond = std::upper_bound(config.adaptive->cutoffs.begin(), config.adaptive->cutoffs.end(), token);
    ++met[static_cast<size_t>(beyond - config.adaptive->cutoffs.begin())];
  }
  double mean_in = 0, mean_out = 0, max_in = 0, max_out = 0;
  for (size_t b = 0; b < bands.size(); ++b) {
    const double share = tokens.empty() ? 0 : number(met[b]) / number(static_cast<int64_t>(tokens.size()));
    const double in = number(width * bands[b].width);
    const double out = b == 0 ? 0 : number((width + bands[b].words) * bands[b].width);
    mean_in += share * in;
    mean_out += share * out;
    max_in = std::max(max_in, in);
    max_out = std::max(max_out, out);
  }
  return head + (tokens.empty() ? max_in + max_out : mean_in + mean_out);
}

}  // namespace

double training_flops_per_token(const LanguageModelConfig& config, int64_t length, std::span<const int32_t> tokens) {
  const TransformerConfig& t = config.transformer;
  const double products =
      number(t.parameter_count() - t.position_parameter_count()) + vocabulary_products(config, tokens);
  // Scores, and their product with the values, take 2 FLOPs each per channel and key, and twice that in the backward
  // pass. A query sees length / 2 keys on average if causal, otherwise all.
  const double attention = (t.attention.causal ? 6 : 12) * number(t.layers) * number(t.d_model) * number(length);
  return 6 * products + attention;
}

}  // namespace alibi
