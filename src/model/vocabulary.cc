#include "model/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "core/check.h"
#include "model/layers.h"
#include "nn/adaptive_input.h"
#include "nn/adaptive_softmax.h"
#include "nn/cross_entropy.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/scale.h"

namespace alibi::model {
namespace {

/// With standard deviation width^-0.5, the first logits of the tied projection are about N(0, 1).
Initializer of_table(int width) { return Initializer::normal(1 / std::sqrt(static_cast<float>(width))); }

/// Streams of random numbers that differ from those of the transformer, which count up from 0.
constexpr uint64_t past_the_layers = ~uint64_t{0};
uint64_t stream_of_band(size_t index) { return core::mix(0x1417, past_the_layers, index); }

/// One table. The output projection is the embedding, or a separate matrix.
class Table : public Vocabulary {
 public:
  explicit Table(const LanguageModelConfig& config)
      : rows_(config.vocab_size),
        width_(config.transformer.d_model),
        scale_(config.transformer.embedding.scale),
        token_types_(config.transformer.embedding.token_types),
        head_config_(config.transformer.head) {}

  void declare(const VisitParameter& visit) override {
    visit(table_, {.name = "wte.weight",
                   .shape = {rows_, width_},
                   .start = of_table(width_),
                   .is_operand = head_config_.tied && head_config_.predicts,
                   .is_matrix = true,
                   .stream = core::mix(0x1417, past_the_layers)});
    if (token_types_ > 0) {
      visit(types_, {.name = "wtt.weight",
                     .shape = {token_types_, width_},
                     .start = of_table(width_),
                     .stream = core::mix(0x1417, past_the_layers, 1)});
    }
    if (head_config_.labels > 0) {
      pooler_.declare(visit, "pooler", width_, width_, of_table(width_), Initializer::constant(0));
      classifier_.declare(visit, "classifier", head_config_.labels, width_, of_table(width_), Initializer::constant(0));
    }
    if (head_config_.tied || !head_config_.predicts) return;
    visit(own_head_, {.name = "lm_head.weight",
                      .shape = {rows_, width_},
                      .start = of_table(width_),
                      .decays = true,
                      .is_operand = true,
                      .is_matrix = true,
                      .stream = core::mix(0x1417, past_the_layers, ~uint64_t{0})});
  }

  void embed(const Tensor& ids, const Tensor* token_types, Tensor& y) const override {
    nn::embedding(ids, table_->value, scale_, y);
    if (types_ == nullptr) return;
    constexpr int64_t most = 1024;  // rows at a time, so that no second tensor like y is needed
    const Tensor none({std::min(most, ids.size(0))}, DType::int32);
    Tensor added = Tensor::empty({none.size(0), width_}, DType::float32);
    for (int64_t begin = 0; begin < ids.size(0); begin += most) {
      const int64_t end = std::min(ids.size(0), begin + most);
      Tensor part = y.slice(0, begin, end), added_part = added.slice(0, 0, end - begin);
      const Tensor types = token_types != nullptr ? token_types->slice(0, begin, end) : none.slice(0, 0, end - begin);
      nn::embedding(types, types_->value, 1, added_part);
      nn::add(part, added_part, part);
    }
  }
  void embed_backward(const Tensor& dy, const Tensor& ids) override {
    nn::embedding_backward(dy, ids, scale_, table_->gradient);
  }
  /// The score of Hugging Face's BertForSequenceClassification: classifier(tanh(pooler(states))).
  Tensor classify(const Tensor& states) const override {
    check(head_config_.labels > 0, "[encoder] the model has no classifier; use hidden states or vectors");
    Tensor pooled = Tensor::empty(states.shape()), result = Tensor::empty({states.size(0), head_config_.labels});
    nn::linear(states, pooler_.weight->value, &pooler_.bias->value, pooled);
    float* const values = pooled.data<float>();
    std::transform(values, values + pooled.elements(), values, [](float x) { return std::tanh(x); });
    nn::linear(pooled, classifier_.weight->value, &classifier_.bias->value, result);
    return result;
  }
  void logits(const Tensor& states, Tensor& result) const override {
    nn::linear(scaled(states), head().operand(), nullptr, result);
  }
  void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const override {
    nn::linear_cross_entropy(scaled(states), head().operand(), targets, result);
  }
  void nll_with_gradients(const Tensor& states, const Tensor& targets, float gradient_scale, const StepSeed&,
                          std::span<float> result, Tensor& dstates) override {
    check(!head_config_.normalized,
          "[language model training] the model has a normalized head, which cannot be trained; it can be evaluated and "
          "generates text");
    nn::linear_cross_entropy_with_gradients(scaled(states), head().operand(), targets, gradient_scale, result, dstates,
                                            head().gradient);
    if (head_config_.logit_scale != 1) nn::scale(dstates, logit_scale(), dstates);
  }

 private:
  Parameter& head() const {
    check(head_config_.predicts,
          "[language model] the model is an encoder without an output projection: it gives states and vectors (alibi "
          "embed, EncoderModel), but no probabilities of tokens");
    return own_head_ != nullptr ? *own_head_ : *table_;
  }
  float logit_scale() const { return static_cast<float>(head_config_.logit_scale); }
  /// Multiplies by the factor of the logits, either the states or the weights, whichever has fewer numbers.
  Tensor scaled(const Tensor& states) const {
    if (head_config_.logit_scale == 1) return states;
    Tensor result = Tensor::empty(states.shape(), states.dtype());
    nn::scale(states, logit_scale(), result);
    return result;
  }

  int rows_, width_;
  float scale_;
  int token_types_;
  HeadConfig head_config_;
  Parameter* table_ = nullptr;
  Parameter* types_ = nullptr;       // null without token types
  LinearLayer pooler_, classifier_;  // of classifiers
  Parameter* own_head_ = nullptr;    // null if the table is also the output matrix
};

/// Adaptive input and adaptive softmax with tied tables and projections.
class Bands : public Vocabulary {
 public:
  explicit Bands(const LanguageModelConfig& config)
      : width_(config.transformer.d_model),
        scale_(config.transformer.embedding.scale),
        dropout_(config.adaptive->dropout),
        bands_(config.bands()),
        tables_(bands_.size()),
        projections_(bands_.size()) {}

  void declare(const VisitParameter& visit) override {
    for (size_t b = 0; b < bands_.size(); ++b) {
      const VocabularyBand& band = bands_[b];
      // The first band also has one row for each other band.
      const int64_t others = b == 0 ? static_cast<int64_t>(bands_.size()) - 1 : 0;
      ParameterSpec table{.name = fmt::format("wte.bands.{}.weight", b),
                          .shape = {band.words + others, band.width},
                          .start = of_table(band.width),
                          .is_operand = true,
                          .stream = stream_of_band(3 * b + 1)};
      if (others > 0) table.last_rows = {others, Initializer::xavier(width_, others), stream_of_band(3 * b + 2)};
      visit(tables_[b], std::move(table));
      visit(projections_[b], {.name = fmt::format("wte.bands.{}.projection", b),
                              .shape = {width_, band.width},
                              .start = Initializer::xavier(band.width, width_),
                              .decays = true,
                              .is_operand = true,
                              .stream = stream_of_band(3 * b + 3)});
    }
  }

  void embed(const Tensor& ids, const Tensor*, Tensor& y) const override {
    nn::adaptive_input(ids, weights(), scale_, y);
  }
  void embed_backward(const Tensor& dy, const Tensor& ids) override {
    nn::AdaptiveWeights sums = gradients();
    nn::adaptive_input_backward(dy, ids, weights(), scale_, sums);
  }
  Tensor classify(const Tensor&) const override { fail("[encoder] an adaptive vocabulary has no classifier"); }
  void logits(const Tensor& states, Tensor& result) const override {
    nn::adaptive_log_probabilities(states, weights(), result);
  }
  void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const override {
    nn::adaptive_cross_entropy(states, weights(), targets, result);
  }
  void nll_with_gradients(const Tensor& states, const Tensor& targets, float gradient_scale, const StepSeed& seed,
                          std::span<float> result, Tensor& dstates) override {
    nn::AdaptiveWeights sums = gradients();
    const core::Random draws(seed.seed, core::mix(seed.step, seed.part, past_the_layers));
    nn::adaptive_cross_entropy_with_gradients(states, weights(), targets, gradient_scale, dropout_, draws, result,
                                              dstates, sums);
  }

 private:
  /// A tensor of each parameter.
  template <class Member>
  nn::AdaptiveWeights all(Member member) const {
    nn::AdaptiveWeights result;
    for (const Parameter* table : tables_) result.tables.push_back(std::invoke(member, *table));
    for (const Parameter* projection : projections_) result.projections.push_back(std::invoke(member, *projection));
    return result;
  }
  nn::AdaptiveWeights weights() const { return all(&Parameter::operand); }
  nn::AdaptiveWeights gradients() const { return all(&Parameter::gradient); }

  int width_;
  float scale_, dropout_;
  std::vector<VocabularyBand> bands_;
  std::vector<Parameter*> tables_, projections_;
};

}  // namespace

std::unique_ptr<Vocabulary> make_vocabulary(const LanguageModelConfig& config) {
  if (config.adaptive) return std::make_unique<Bands>(config);
  return std::make_unique<Table>(config);
}

}  // namespace alibi::model
