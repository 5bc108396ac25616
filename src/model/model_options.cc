#include "alibi/model_options.h"

#include <algorithm>

namespace alibi {
namespace {

/// As published: T5 was trained at 512 and had 128.
int64_t usual_t5_max_distance(int64_t train_length, int64_t buckets) { return std::max(train_length / 4, buckets); }

/// AdamW moves every weight by about the rate in an update, and biases have farther to go than other weights: at the
/// rate of the rest the table of a short training stays near zero (docs/paper.md, E1). The paper's recipe has another
/// optimizer.
double usual_t5_rate_factor(const LanguageModelConfig& preset) {
  return preset.transformer.initialization == Initialization::fairseq ? 1 : 64;
}

}  // namespace

LanguageModelConfig with_options(LanguageModelConfig config, const ModelOptions& options,
                                 const LanguageModelConfig& preset) {
  TransformerConfig& t = config.transformer;
  if (options.layers > 0) t.layers = static_cast<int>(options.layers);
  if (options.d_model > 0) t.d_model = static_cast<int>(options.d_model);
  if (options.heads > 0) t.heads = static_cast<int>(options.heads);
  config.embedding_scale =
      options.embedding_scale > 0 ? static_cast<float>(options.embedding_scale) : preset.embedding_scale;
  t.causal = options.causal;
  t.bidirectional = options.bidirectional;
  t.alibi_bias_max = options.bias_max;
  t.alibi_slopes.assign(options.slopes.begin(), options.slopes.end());
  t.slope_training = options.slope_training;
  t.tolerance = static_cast<float>(options.tolerance);
  t.window = options.window;
  t.t5_buckets = static_cast<int>(options.t5_buckets);
  t.t5_init = options.t5_init;
  if (options.t5_rate_factor > 0) {
    t.t5_rate_factor = options.t5_rate_factor;
  } else if (t.position == Position::t5) {
    t.t5_rate_factor = usual_t5_rate_factor(preset);
  }
  if (options.t5_max_distance > 0) {
    t.t5_max_distance = static_cast<int>(options.t5_max_distance);
  } else if (t.position == Position::t5) {
    t.t5_max_distance = static_cast<int>(usual_t5_max_distance(config.train_length, options.t5_buckets));
  }
  return config;
}

}  // namespace alibi
