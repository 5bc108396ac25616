#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"
#include "model/training_buffers.h"

namespace alibi {
namespace {

constexpr int largest_extent = 1 << 20;  // keeps every product of two extents far from overflow

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  check_usage(value >= low && value <= high, "[config] {} is {}, expected {} to {}", field, value, low, high);
}

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

void LanguageModelConfig::validate() const {
  transformer.validate();
  check_range("vocab_size", vocab_size, 1, 1 << 28);
  check_range("train_length", train_length, 0, int64_t{1} << 40);
  check_usage(std::isfinite(embedding_scale) && embedding_scale > 0,
              "[config] embedding_scale is {}, expected a positive number", embedding_scale);
  if (!adaptive) return;
  check_range("adaptive factor", adaptive->factor, 1, largest_extent);
  check_usage(adaptive->dropout >= 0 && adaptive->dropout < 1,
              "[config] adaptive dropout is {}, expected at least 0 and below 1", adaptive->dropout);
  check_range("the number of adaptive cutoffs", static_cast<int64_t>(adaptive->cutoffs.size()), 0, 62);
  int64_t before = 0;
  for (const int64_t cutoff : adaptive->cutoffs) {
    check_usage(cutoff > before && cutoff < vocab_size,
                "[config] adaptive cutoffs are {}, expected to rise from above 0 to below vocab_size, {}",
                fmt::join(adaptive->cutoffs, ", "), vocab_size);
    before = cutoff;
  }
  const VocabularyBand last = bands().back();
  check_usage(last.width > 0, "[config] d_model {} and an adaptive factor of {} leave no width for band {}",
              transformer.d_model, adaptive->factor, adaptive->cutoffs.size());
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
