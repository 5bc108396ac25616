#include "model/vocabulary.h"

#include <cmath>
#include <string>

#include "core/check.h"
#include "model/initialization.h"
#include "nn/adaptive_input.h"
#include "nn/adaptive_softmax.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "nn/linear.h"

namespace alibi {
namespace {

/// Standard deviation width^-0.5 makes the first logits of the tied projection about N(0, 1).
Start of_table(int width) { return Start::normal(1 / std::sqrt(static_cast<float>(width))); }

/// Apart from the streams of the transformer, which count up from 0.
Random draws_of(uint64_t seed, uint64_t index) {
  const uint64_t last = ~uint64_t{0};
  return Random(seed, index == 0 ? mix(0x1417, last) : mix(0x1417, last, index));
}

/// The table of the embedding is the output projection too.
class Table : public Vocabulary {
 public:
  Table(const LanguageModelConfig& config, uint64_t seed) : scale_(config.embedding_scale) {
    parameters_.push_back(vocabulary_specs(config).front().make(draws_of(seed, 0)));
  }

  void embed(const Tensor& ids, Tensor& y) const override { nn::embedding(ids, parameters_[0].value, scale_, y); }
  void embed_backward(const Tensor& dy, const Tensor& ids) override {
    nn::embedding_backward(dy, ids, scale_, parameters_[0].gradient);
  }
  void logits(const Tensor& states, Tensor& result) const override { nn::linear(states, table(), nullptr, result); }
  void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const override {
    nn::linear_cross_entropy(states, table(), targets, result);
  }
  void nll_with_gradients(const Tensor& states, const Tensor& targets, float gradient_scale, const StepSeed&,
                          std::span<float> result, Tensor& dstates) override {
    nn::linear_cross_entropy_with_gradients(states, table(), targets, gradient_scale, result, dstates,
                                            parameters_[0].gradient);
  }

 private:
  const Tensor& table() const { return parameters_[0].operand(); }

  float scale_;
};

/// Adaptive input and adaptive softmax with tied tables and projections.
class Bands : public Vocabulary {
 public:
  Bands(const LanguageModelConfig& config, uint64_t seed)
      : scale_(config.embedding_scale), dropout_(config.adaptive->dropout) {
    const std::vector<ParameterSpec> specs = vocabulary_specs(config);  // table, projection, table, projection ...
    const std::vector<VocabularyBand> bands = config.bands();
    for (size_t b = 0; b < bands.size(); ++b) {
      Parameter table = specs[2 * b].make(draws_of(seed, 3 * b + 1));
      const int64_t rows = table.value.size(0);
      if (rows > bands[b].words) {  // the rows that stand for the other bands
        Tensor clusters = table.value.slice(0, bands[b].words, rows);
        initialize(clusters, Start::xavier(config.transformer.d_model, rows - bands[b].words),
                   draws_of(seed, 3 * b + 2));
      }
      parameters_.push_back(std::move(table));
      parameters_.push_back(specs[2 * b + 1].make(draws_of(seed, 3 * b + 3)));
    }
  }

  void embed(const Tensor& ids, Tensor& y) const override { nn::adaptive_input(ids, weights(), scale_, y); }
  void embed_backward(const Tensor& dy, const Tensor& ids) override {
    nn::AdaptiveWeights sums = gradients();
    nn::adaptive_input_backward(dy, ids, weights(), scale_, sums);
  }
  void logits(const Tensor& states, Tensor& result) const override {
    nn::adaptive_log_probabilities(states, weights(), result);
  }
  void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const override {
    nn::adaptive_cross_entropy(states, weights(), targets, result);
  }
  void nll_with_gradients(const Tensor& states, const Tensor& targets, float gradient_scale, const StepSeed& seed,
                          std::span<float> result, Tensor& dstates) override {
    nn::AdaptiveWeights sums = gradients();
    const Random draws(seed.seed, mix(seed.step, seed.part, ~uint64_t{0}));  // past the transformer's last layer
    nn::adaptive_cross_entropy_with_gradients(states, weights(), targets, gradient_scale, dropout_, draws, result,
                                              dstates, sums);
  }

 private:
  nn::AdaptiveWeights weights() const {
    nn::AdaptiveWeights result;
    for (size_t i = 0; i < parameters_.size(); i += 2) {
      result.tables.push_back(parameters_[i].operand());
      result.projections.push_back(parameters_[i + 1].operand());
    }
    return result;
  }
  nn::AdaptiveWeights gradients() const {
    nn::AdaptiveWeights result;
    for (size_t i = 0; i < parameters_.size(); i += 2) {
      result.tables.push_back(parameters_[i].gradient);
      result.projections.push_back(parameters_[i + 1].gradient);
    }
    return result;
  }

  float scale_, dropout_;
};

}  // namespace

std::vector<ParameterSpec> vocabulary_specs(const LanguageModelConfig& config) {
  const int64_t width = config.transformer.d_model;
  if (!config.adaptive) {
    return {{"wte.weight", {config.vocab_size, width}, of_table(config.transformer.d_model), false}};
  }
  std::vector<ParameterSpec> specs;
  const std::vector<VocabularyBand> bands = config.bands();
  for (size_t b = 0; b < bands.size(); ++b) {
    const VocabularyBand& band = bands[b];
    const int64_t others = b == 0 ? static_cast<int64_t>(bands.size()) - 1 : 0;
    specs.push_back(
        {fmt::format("wte.bands.{}.weight", b), {band.words + others, band.width}, of_table(band.width), false});
    specs.push_back(
        {fmt::format("wte.bands.{}.projection", b), {width, band.width}, Start::xavier(band.width, width), true});
  }
  return specs;
}

std::unique_ptr<Vocabulary> make_vocabulary(const LanguageModelConfig& config, uint64_t seed) {
  if (config.adaptive) return std::make_unique<Bands>(config, seed);
  return std::make_unique<Table>(config, seed);
}

}  // namespace alibi
