#include "alibi/language_model.h"

#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "model/mpt_folder.h"
#include "model/round_operand.h"
#include "nn/cross_entropy.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/linear.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, V vocab_size.

namespace alibi {

struct LanguageModel::State {
  LanguageModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  Transformer transformer;
  Parameter embedding;       // [V, C], also the output projection
  Tensor embedded, dhidden;  // [R, C], kept between training steps

  State(const LanguageModelConfig& config_in, uint64_t seed, std::shared_ptr<const Tokenizer> tokenizer_in)
      : config(config_in), tokenizer(std::move(tokenizer_in)), transformer(validated(config_in).transformer, seed) {
    const int64_t vocab = config.vocab_size, width = config.transformer.d_model;
    embedding = {"wte.weight", Tensor::empty({vocab, width}), Tensor(), false};
    // Standard deviation d_model^-0.5 makes the first logits of the tied projection about N(0, 1).
    const float deviation = 1.0f / std::sqrt(static_cast<float>(width));
    const Random random(seed, mix(0x1417, ~uint64_t{0}));
    float* values = embedding.value.data<float>();
    parallel_ranges(vocab * width, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = deviation * random.normal(static_cast<uint64_t>(i));
    });
    if (!tokenizer && vocab == ByteTokenizer().vocab_size()) tokenizer = std::make_shared<ByteTokenizer>();
    check_usage(!tokenizer || tokenizer->vocab_size() <= vocab,
                "[language model] the tokenizer has {} tokens, vocab_size is {}",
                tokenizer ? tokenizer->vocab_size() : 0, vocab);
  }

  /// Hidden states in the type that products are computed in.
  Tensor rounded(const Tensor& states) const {
    if (transformer.precision() == Precision::f32) return states;
    Tensor result = Tensor::empty(states.shape(), DType::bfloat16);
    nn::convert(states, result);
    return result;
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
    : state_(std::make_unique<State>(config, seed, std::move(tokenizer))) {}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

LanguageModel LanguageModel::load(const std::filesystem::path& folder) {
  const LanguageModelConfig config = read_mpt_config(folder);  // first: what is no model folder should be told so
  LanguageModel model(config, 0, Tokenizer::load(folder));
  read_mpt_weights(folder, model.config(), model.parameters());
  return model;
}

void LanguageModel::save(const std::filesystem::path& folder) const {
  write_mpt_folder(folder, config(), parameters(), state_->tokenizer.get());
  if (state_->tokenizer) state_->tokenizer->save(folder);
}

const LanguageModelConfig& LanguageModel::config() const { return state_->config; }

void LanguageModel::set_train_length(int64_t length) { state_->config.train_length = length; }

const Tokenizer& LanguageModel::tokenizer() const {
  check(state_->tokenizer != nullptr, "[language model] it has no tokenizer: give one to the constructor");
  return *state_->tokenizer;
}

int64_t LanguageModel::parameter_count() const {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) count += parameter->value.elements();
  return count;
}

Tensor LanguageModel::hidden(const Tensor& ids) const {
  State::check_ids(ids, "language model");
  const int64_t batch = ids.size(0), length = ids.size(1), width = config().transformer.d_model;
  Tensor embedded = Tensor::empty({batch * length, width});
  nn::embedding(ids.reshape({batch * length}), state_->embedding.value, config().embedding_scale, embedded);
  return state_->transformer(embedded.reshape({batch, length, width}));
}

Tensor LanguageModel::logits(const Tensor& ids) const {
  const Tensor states = hidden(ids);
  const int64_t rows = ids.elements(), vocab = config().vocab_size;
  Tensor result = Tensor::empty({rows, vocab});
  nn::linear(state_->rounded(states.reshape({rows, states.size(2)})), state_->embedding.operand(), nullptr, result);
  return result.reshape({ids.size(0), ids.size(1), vocab});
}

std::vector<float> LanguageModel::nll(const Tensor& ids, const Tensor& targets) const {
  State::check_targets(ids, targets, "language model");
  const Tensor states = hidden(ids);
  const int64_t rows = ids.elements();
  std::vector<float> result(static_cast<size_t>(rows));
  nn::linear_cross_entropy(state_->rounded(states.reshape({rows, states.size(2)})), state_->embedding.operand(),
                           targets.reshape({rows}), result);
  return result;
}

double LanguageModel::accumulate_gradients(const Tensor& ids, const Tensor& targets, float gradient_scale,
                                           const StepSeed& seed) {
  State& s = *state_;
  State::check_targets(ids, targets, "language model training");
  check(s.embedding.gradient.defined(),
        "[language model training] there are no gradients to add to; call zero_gradients() first");
  const int64_t batch = ids.size(0), length = ids.size(1), rows = batch * length;
  const int64_t width = config().transformer.d_model;
  const auto reuse = [&](Tensor& tensor, DType dtype) {
    if (tensor.defined() && tensor.size(0) == rows && tensor.dtype() == dtype) return;
    tensor = Tensor::empty({rows, width}, dtype);
  };
  reuse(s.embedded, DType::float32);
  nn::embedding(ids.reshape({rows}), s.embedding.value, config().embedding_scale, s.embedded);
  const Tensor states = s.transformer.forward(s.embedded.reshape({batch, length, width}), seed);
  reuse(s.dhidden, states.dtype());
  std::vector<float> nll(static_cast<size_t>(rows));
  nn::linear_cross_entropy_with_gradients(states.reshape({rows, width}), s.embedding.operand(), targets.reshape({rows}),
                                          gradient_scale, nll, s.dhidden, s.embedding.gradient);
  const Tensor dembedded = s.transformer.backward(s.dhidden.reshape({batch, length, width}));
  nn::embedding_backward(dembedded.reshape({rows, width}), ids.reshape({rows}), config().embedding_scale,
                         s.embedding.gradient);
  return std::accumulate(nll.begin(), nll.end(), 0.0);
}

std::vector<Parameter*> LanguageModel::parameters() {
  std::vector<Parameter*> all{&state_->embedding};
  for (Parameter& parameter : state_->transformer.parameters()) all.push_back(&parameter);
  return all;
}

std::vector<const Parameter*> LanguageModel::parameters() const {
  std::vector<const Parameter*> all{&state_->embedding};
  for (const Parameter& parameter : std::as_const(state_->transformer).parameters()) all.push_back(&parameter);
  return all;
}

void LanguageModel::set_precision(Precision precision) {
  state_->embedding.rounded = Tensor();
  state_->transformer.set_precision(precision);
  weights_changed();
}
Precision LanguageModel::precision() const { return state_->transformer.precision(); }
void LanguageModel::set_recompute(bool recompute) { state_->transformer.set_recompute(recompute); }

void LanguageModel::weights_changed() {
  if (precision() == Precision::bf16) round_operand(state_->embedding);
  state_->transformer.weights_changed();
}

void LanguageModel::zero_gradients() {
  if (state_->embedding.gradient.defined()) {
    state_->embedding.gradient.fill(0);
  } else {
    state_->embedding.gradient = Tensor(state_->embedding.value.shape());
  }
  state_->transformer.zero_gradients();
}

void LanguageModel::release_training_memory() {
  state_->embedded = Tensor();
  state_->dhidden = Tensor();
  state_->transformer.release_activations();
  for (Parameter* parameter : parameters()) parameter->gradient = Tensor();
}

}  // namespace alibi
