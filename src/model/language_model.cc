#include "alibi/language_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/access.h"
#include "core/check.h"
#include "core/files.h"
#include "model/context_state.h"
#include "model/original_format.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "model/transformer_state.h"
#include "model/vocabulary.h"
#include "nn/elementwise.h"
#include "nn/products.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, V vocab_size.

namespace alibi {

struct [[gnu::visibility("hidden")]] LanguageModel::State {
  LanguageModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const model::OriginalFormat> origin;  // null: a model of this library
  Transformer transformer;
  std::unique_ptr<model::Vocabulary> vocabulary;
  std::vector<Parameter> vocabulary_parameters;
  Interpolation interpolation;
  Tensor embedded, dhidden;  // [R, C], kept between training steps

  /// Without a seed the parameters are not initialized.
  State(const LanguageModelConfig& config_in, std::optional<uint64_t> seed,
        std::shared_ptr<const Tokenizer> tokenizer_in)
      : config(config_in),
        tokenizer(std::move(tokenizer_in)),
        transformer(validated(config_in).transformer, seed),
        vocabulary(model::make_vocabulary(config)),
        vocabulary_parameters(
            model::make_parameters([this](const model::VisitParameter& visit) { vocabulary->declare(visit); }, seed)) {
    const int vocab = config.mask_token().value_or(config.vocab_size);
    if (!tokenizer && vocab == ByteTokenizer().vocab_size()) tokenizer = std::make_shared<ByteTokenizer>();
    check_usage(!tokenizer || tokenizer->vocab_size() <= vocab,
                "[language model] the tokenizer has {} tokens, vocab_size is {}{}",
                tokenizer ? tokenizer->vocab_size() : 0, config.vocab_size,
                config.mask_token() ? ", with the mask" : "");
  }

  /// Hidden states in the data type of the matrix products.
  Tensor rounded(const Tensor& states) const {
    if (transformer.precision() == Precision::f32) return states;
    Tensor result = Tensor::empty(states.shape(), DType::bfloat16);
    nn::convert(states, result);
    return result;
  }

  /// The logits of states [R, C].
  Tensor logits(const Tensor& states) const {
    Tensor result = Tensor::empty({states.size(0), config.vocab_size}, DType::float32);
    const nn::IntegerProducts integers(core::state_of(transformer).quantizes_activations);
    vocabulary->logits(rounded(states), result);
    return result;
  }

  /// The losses of targets [R] for states [R, C].
  void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const {
    const nn::IntegerProducts integers(core::state_of(transformer).quantizes_activations);
    vocabulary->nll(rounded(states), targets, result);
  }

  static const LanguageModelConfig& validated(const LanguageModelConfig& config) {
    config.validate();
    return config;
  }

  static void check_ids(const Tensor& ids, const char* operation) {
    check(ids.axes() == 2 && ids.dtype() == DType::int32 && ids.contiguous() && ids.elements() > 0,
          "[{}] ids are {} {}, expected contiguous int32 [batch, length] with at least one token", operation,
          name_of(ids.dtype()), to_string(ids.shape()));
  }

  static void check_targets(const Tensor& ids, const Tensor& targets, const char* operation) {
    check_ids(ids, operation);
    check(targets.shape() == ids.shape() && targets.dtype() == DType::int32 && targets.contiguous(),
          "[{}] targets are {} {}, expected contiguous int32 like the ids, {}", operation, name_of(targets.dtype()),
          to_string(targets.shape()), to_string(ids.shape()));
  }
};

LanguageModel::LanguageModel(const LanguageModelConfig& config, uint64_t seed,
                             std::shared_ptr<const Tokenizer> tokenizer)
    : LanguageModel(std::make_unique<State>(config, seed, std::move(tokenizer))) {}
LanguageModel::LanguageModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

LanguageModel LanguageModel::without_values(const LanguageModelConfig& config,
                                            std::shared_ptr<const Tokenizer> tokenizer,
                                            std::shared_ptr<const model::OriginalFormat> origin) {
  LanguageModel model(std::make_unique<State>(config, std::nullopt, std::move(tokenizer)));
  model.state_->origin = std::move(origin);
  return model;
}

const model::OriginalFormat* LanguageModel::origin() const { return state_->origin.get(); }

LanguageModel LanguageModel::sharing_weights(const std::function<void(LanguageModelConfig&)>& adjust) const {
  LanguageModelConfig changed = config();
  adjust(changed);
  LanguageModel same = without_values(changed, state_->tokenizer, state_->origin);
  const std::vector<const Parameter*> from = parameters();
  const std::vector<Parameter*> to = same.parameters();
  check(from.size() == to.size(), "[language model] weights of {} tensors cannot be shared by a model of {} tensors",
        from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i]->value = from[i]->value;
  same.set_precision(precision());
  same.set_quantized_activations(quantized_activations());
  for (size_t i = 0; i < from.size(); ++i) to[i]->rounded = from[i]->rounded;
  same.set_interpolation(interpolation());
  return same;
}

const LanguageModelConfig& LanguageModel::config() const { return state_->config; }

std::vector<std::vector<float>> LanguageModel::slopes() const { return state_->transformer.slopes(); }

void LanguageModel::set_train_length(int64_t length) { state_->config.train_length = length; }

bool LanguageModel::has_tokenizer() const { return state_->tokenizer != nullptr; }

const Tokenizer& LanguageModel::tokenizer() const {
  check(state_->tokenizer != nullptr,
        "[language model] it has no tokenizer: put its files into the model folder, or give one to the constructor");
  return *state_->tokenizer;
}

int64_t LanguageModel::parameter_count() const { return config().parameter_count(); }

int64_t LanguageModel::weight_bytes() const {
  int64_t bytes = 0;
  for (const Parameter* parameter : parameters()) bytes += static_cast<int64_t>(parameter->value.bytes());
  return bytes;
}

void LanguageModel::to_float32() {
  model::to_float32(parameters());
  weights_changed();
}

Tensor model::hidden(const LanguageModel& model, const Tensor& ids, model::Pass& pass) {
  core::StateOf<LanguageModel>::check_ids(ids, "language model");
  const int64_t batch = ids.size(0), length = ids.size(1), width = model.config().transformer.d_model;
  Tensor embedded = Tensor::empty({batch * length, width}, DType::float32);
  embed_ids(model, ids.reshape({batch * length}), pass.sequences.token_types, embedded);
  const Tensor x = embedded.reshape({batch, length, width});
  return core::state_of(transformer_of(model)).forward(x, model::Keep::nothing, pass);
}

void model::embed_ids(const LanguageModel& model, const Tensor& ids, const Tensor* token_types, Tensor& y) {
  core::state_of(model).vocabulary->embed(ids, token_types, y);
}
const Transformer& model::transformer_of(const LanguageModel& model) { return core::state_of(model).transformer; }
void model::on_layer_gradients(LanguageModel& model, std::function<void(int layer)> call) {
  core::state_of(core::state_of(model).transformer).on_layer_gradients = std::move(call);
}
void model::divide_sequences(LanguageModel& model, const SequenceRanks* ranks, int64_t length) {
  core::state_of(core::state_of(model).transformer).division = {ranks, length};
}

Tensor model::classify(const LanguageModel& model, const Tensor& states) {
  return core::state_of(model).vocabulary->classify(states);
}

Tensor model::logits(const LanguageModel& model, const Tensor& states) { return core::state_of(model).logits(states); }

model::PositionScale model::position_scale(const LanguageModel& model, int64_t length) {
  const auto [factor, dynamic, from, rotary] = model.interpolation();
  const int64_t trained = from > 0 ? from : model.config().train_length;
  const double longer = static_cast<double>(length) / static_cast<double>(trained);
  return {static_cast<float>(1 / (dynamic ? std::max(1.0, longer) : factor)), rotary, trained};
}

void LanguageModel::set_interpolation(const Interpolation& interpolation) {
  const bool is_linear = interpolation.rotary == RotaryScaling::linear;
  const bool does_something = interpolation.dynamic || interpolation.factor != 1;
  check_usage(!does_something || model::can_interpolate(config().transformer, interpolation.rotary),
              "[interpolation] the model has {} positions, expected {}", name_of(config().transformer.position),
              is_linear ? "alibi, rotary or others with a formula that can be scaled" : "rotary ones");
  check_usage(interpolation.factor > 0 && std::isfinite(interpolation.factor),
              "[interpolation] the factor is {}, expected a number above 0", interpolation.factor);
  const bool needs_length = interpolation.dynamic || interpolation.rotary == RotaryScaling::yarn;
  check_usage(!needs_length || config().train_length > 0 || interpolation.from > 0,
              "[interpolation] the model does not say what length it was trained at; give a factor");
  state_->interpolation = interpolation;
}
const Interpolation& LanguageModel::interpolation() const { return state_->interpolation; }

Tensor LanguageModel::hidden(const Tensor& ids) const {
  model::Pass pass;
  if (ids.axes() == 2) pass.sequences.together.position_scale = model::position_scale(*this, ids.size(1));
  return alibi::model::hidden(*this, ids, pass);
}

Tensor LanguageModel::hidden(const Tensor& ids, Context& context) const {
  Context* const one = &context;
  return hidden(ids, std::span(&one, 1));
}

Tensor LanguageModel::hidden(const Tensor& ids, std::span<Context* const> contexts) const {
  State::check_ids(ids, "language model");
  Tensor all = Tensor::empty({ids.size(0), ids.size(1), config().transformer.d_model});
  model::read(*this, ids, contexts, [&](int64_t first, const Tensor& states) {
    all.slice(1, first, first + states.size(1)).copy_from(states);
  });
  return all;
}

Tensor LanguageModel::logits(const Tensor& ids, const Tensor& attention_mask) const {
  State::check_ids(ids, "language model");
  check(attention_mask.shape() == ids.shape() && attention_mask.dtype() == DType::int32 && attention_mask.contiguous(),
        "[language model] the attention mask is {} {}, expected contiguous int32 like the ids, {}",
        name_of(attention_mask.dtype()), to_string(attention_mask.shape()), to_string(ids.shape()));
  const int64_t length = ids.size(1);
  Tensor result({ids.size(0), length, config().vocab_size});
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const auto ones = attention_mask.slice(0, row, row + 1).to_ints();
    const auto is_token = [](int32_t value) { return value != 0; };
    const int64_t first = std::find_if(ones.begin(), ones.end(), is_token) - ones.begin();
    const int64_t last = ones.rend() - std::find_if(ones.rbegin(), ones.rend(), is_token);
    if (first >= last) continue;
    check(std::all_of(ones.begin() + first, ones.begin() + last, is_token),
          "[language model] row {} of the attention mask has zeros between ones, expected the tokens of a text side by "
          "side",
          row);
    Tensor target = result.slice(0, row, row + 1).slice(1, first, last);
    target.copy_from(logits(ids.slice(0, row, row + 1).slice(1, first, last).clone()));
  }
  return result;
}

Tensor LanguageModel::logits(const Tensor& ids) const {
  const Tensor states = hidden(ids);
  const int64_t rows = ids.elements(), vocab = config().vocab_size;
  return state_->logits(states.reshape({rows, states.size(2)})).reshape({ids.size(0), ids.size(1), vocab});
}

namespace {

/// The states [batch, length, C] of the last tokens as [batch, C].
Tensor last_of(const Tensor& states) {
  const int64_t batch = states.size(0), length = states.size(1), width = states.size(2);
  return states.slice(1, length - 1, length).clone().reshape({batch, width});
}

}  // namespace

Tensor LanguageModel::next_logits(const Tensor& ids) const { return state_->logits(last_of(hidden(ids))); }

Tensor LanguageModel::next_logits(const Tensor& ids, Context& context) const {
  Context* const one = &context;
  return next_logits(ids, std::span(&one, 1));
}

Tensor LanguageModel::next_logits(const Tensor& ids, std::span<Context* const> contexts) const {
  State::check_ids(ids, "language model");
  const int64_t length = ids.size(1);
  Tensor result;
  model::read(*this, ids, contexts, [&](int64_t first, const Tensor& states) {
    if (first + states.size(1) == length) result = state_->logits(last_of(states));
  });
  return result;
}

std::vector<float> LanguageModel::nll(const Tensor& ids, const Tensor& targets) const {
  State::check_targets(ids, targets, "language model");
  const Tensor states = hidden(ids);
  const int64_t rows = ids.elements();
  std::vector<float> result(static_cast<size_t>(rows));
  state_->nll(states.reshape({rows, states.size(2)}), targets.reshape({rows}), result);
  return result;
}

std::vector<float> LanguageModel::nll(const Tensor& ids, const Tensor& targets, Context& context) const {
  Context* const one = &context;
  return nll(ids, targets, std::span(&one, 1));
}

std::vector<float> LanguageModel::nll(const Tensor& ids, const Tensor& targets,
                                      std::span<Context* const> contexts) const {
  State::check_targets(ids, targets, "language model");
  const int64_t batch = ids.size(0), length = ids.size(1);
  std::vector<float> result(static_cast<size_t>(ids.elements()));
  model::read(*this, ids, contexts, [&](int64_t first, const Tensor& states) {
    const int64_t read_now = states.size(1), rows = batch * read_now;
    std::vector<float> piece(static_cast<size_t>(rows));
    state_->nll(states.reshape({rows, states.size(2)}),
                targets.slice(1, first, first + read_now).clone().reshape({rows}), piece);
    for (int64_t row = 0; row < batch; ++row) {
      std::copy_n(piece.begin() + row * read_now, read_now, result.begin() + row * length + first);
    }
  });
  return result;
}

double LanguageModel::accumulate_gradients(const Tensor& ids, const Tensor& targets, float gradient_scale,
                                           const StepSeed& seed) {
  State& s = *state_;
  State::check_targets(ids, targets, "language model training");
  check(s.vocabulary_parameters.front().gradient.defined(),
        "[language model training] the gradients are not allocated; call zero_gradients() first");
  const int64_t batch = ids.size(0), length = ids.size(1), rows = batch * length;
  const int64_t width = config().transformer.d_model;
  model::reuse(s.embedded, {rows, width}, DType::float32);
  s.vocabulary->embed(ids.reshape({rows}), nullptr, s.embedded);
  const Tensor states = s.transformer.forward(s.embedded.reshape({batch, length, width}), seed);
  model::reuse(s.dhidden, {rows, width}, states.dtype());
  std::vector<float> nll(static_cast<size_t>(rows));
  s.vocabulary->nll_with_gradients(states.reshape({rows, width}), targets.reshape({rows}), gradient_scale, seed, nll,
                                   s.dhidden);
  const Tensor dembedded = s.transformer.backward(s.dhidden.reshape({batch, length, width}));
  s.vocabulary->embed_backward(dembedded.reshape({rows, width}), ids.reshape({rows}));
  return std::accumulate(nll.begin(), nll.end(), 0.0);
}

std::vector<Parameter*> LanguageModel::parameters() {
  std::vector<Parameter*> all = model::pointers_to(state_->vocabulary_parameters);
  for (Parameter& parameter : state_->transformer.parameters()) all.push_back(&parameter);
  return all;
}

std::vector<const Parameter*> LanguageModel::parameters() const {
  std::vector<const Parameter*> all;
  for (const Parameter& parameter : state_->vocabulary_parameters) all.push_back(&parameter);
  for (const Parameter& parameter : state_->transformer.parameters()) all.push_back(&parameter);
  return all;
}

void LanguageModel::set_precision(Precision precision) {
  state_->transformer.set_precision(precision);
  model::round_operands(model::pointers_to(state_->vocabulary_parameters), precision);
}
Precision LanguageModel::precision() const { return state_->transformer.precision(); }
void LanguageModel::set_recompute(bool recompute) { state_->transformer.set_recompute(recompute); }

void LanguageModel::set_quantized_activations(bool wanted) {
  core::state_of(state_->transformer).quantizes_activations = wanted;
}
bool LanguageModel::quantized_activations() const { return core::state_of(state_->transformer).quantizes_activations; }

void LanguageModel::weights_changed() { model::round_operands(parameters(), precision()); }

void LanguageModel::zero_gradients() {
  const std::vector<Parameter*> all = parameters();
  const auto cannot_learn = [](Parameter* one) {
    return one->value.dtype() != DType::float32 || core::is_mapped(one->value.raw());
  };
  if (std::any_of(all.begin(), all.end(), cannot_learn)) to_float32();
  alibi::model::zero_gradients(all);
}

void LanguageModel::release_training_memory() {
  state_->embedded = Tensor();
  state_->dhidden = Tensor();
  state_->transformer.release_activations();
  for (Parameter* parameter : parameters()) parameter->gradient = Tensor();
}

}  // namespace alibi
