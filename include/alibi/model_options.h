// Shape of a model and what its position methods take, in place of what a preset says.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/options.h"

namespace alibi {

/// 0 of layers, d_model, heads and embedding_scale: the preset's; of t5_max_distance: a quarter of the training length,
/// as T5 had it (128 of 512), or as many as there are buckets if these are more; of t5_rate_factor: 64, without
/// which a short training with AdamW leaves the table near zero, but 1 with the paper's recipe.
struct ModelOptions {
  int64_t layers = 0;
  int64_t d_model = 0;
  int64_t heads = 0;
  double embedding_scale = 0;
  bool causal = true;
  Bidirectional bidirectional = Bidirectional::symmetric;
  double bias_max = 8;
  std::vector<double> slopes = {};
  SlopeTraining slope_training = SlopeTraining::fixed;
  double tolerance = 0x1p-24;
  int64_t window = 0;
  int64_t t5_buckets = 32;
  int64_t t5_max_distance = 0;
  double t5_init = 0.02;
  double t5_rate_factor = 0;
};

template <>
inline constexpr auto options_of<ModelOptions> = std::to_array<Option<ModelOptions>>({
    {ALIBI_OPTION(ModelOptions, layers), .group = "Model and position", .range = {.least = 1, .most = 10'000},
     .help = "Blocks of the transformer"},
    {ALIBI_OPTION(ModelOptions, d_model), .range = {.least = 1, .most = 1'000'000}, .help = "Width of the model"},
    {ALIBI_OPTION(ModelOptions, heads), .range = {.least = 1, .most = 100'000}, .help = "Attention heads"},
    {ALIBI_OPTION(ModelOptions, embedding_scale), .range = {.above = 0, .most = 1e6},
     .help = "Factor of the token embeddings, the same with every method"},
    {ALIBI_OPTION(ModelOptions, causal),
     .help = "false: an encoder, which sees the text on both sides and predicts tokens that are masked"},
    {ALIBI_OPTION(ModelOptions, bidirectional), .help = "alibi, encoders: what looks back, and what ahead"},
    {ALIBI_OPTION(ModelOptions, bias_max), .range = {.above = 0, .most = 1000},
     .help = "alibi: slopes go down to 2^-X"},
    {ALIBI_OPTION(ModelOptions, slopes), .range = {.least = 0, .most = 1e6},
     .help = "alibi: instead, that of each head, separated by commas, or one for all"},
    {ALIBI_OPTION(ModelOptions, slope_training),
     .help = "alibi: whether slopes are learned, by each layer, from these or from random ones"},
    {ALIBI_OPTION(ModelOptions, tolerance), .range = {.least = 0, .below = 1},
     .help = "alibi: bound on the attention weight of keys that are not visited; 0: all are"},
    {ALIBI_OPTION(ModelOptions, window), .range = {.least = 0, .most = 1e9},
     .help = "Attention sees keys at a distance below it alone; 0: all keys"},
    {ALIBI_OPTION(ModelOptions, t5_buckets), .range = {.least = 2, .most = 100'000}, .help = "t5: different distances"},
    {ALIBI_OPTION(ModelOptions, t5_max_distance), .range = {.least = 1, .most = 1e9},
     .help = "t5: distance from which all are one", .default_text = "a quarter of the training length"},
    {ALIBI_OPTION(ModelOptions, t5_init), .range = {.least = 0, .most = 100},
     .help = "t5: standard deviation of the table's first values"},
    {ALIBI_OPTION(ModelOptions, t5_rate_factor), .range = {.above = 0, .most = 1e6},
     .help = "t5: learning rate of the table, as a multiple of that of the rest", .default_text = "64; wikitext103: 1"},
});

/// The model with these in place, which has its position method and `train_length`. The embedding scale is that of the
/// options, or of `preset`, whatever the method.
ALIBI_API LanguageModelConfig with_options(LanguageModelConfig config, const ModelOptions& options,
                                           const LanguageModelConfig& preset);

}  // namespace alibi
