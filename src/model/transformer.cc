#include "alibi/transformer.h"

#include <algorithm>
#include <utility>

#include "attention/biases.h"
#include "core/check.h"
#include "model/transformer_state.h"
#include "nn/elementwise.h"
#include "nn/products.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model.

namespace alibi {
namespace {

Tensor checked_input(const Tensor& x, const TransformerConfig& config, DType type, const char* operation) {
  check(x.axes() == 3 && x.size(2) == config.d_model && x.dtype() == type,
        "[{}] x is {} {}, expected {} [batch, length, {}]", operation, name_of(x.dtype()), to_string(x.shape()),
        name_of(type), config.d_model);
  check(x.size(0) > 0 && x.size(1) > 0, "[{}] x has shape {}, expected at least one token", operation,
        to_string(x.shape()));
  return x.contiguous() ? x : x.clone();
}

}  // namespace

std::vector<AttentionOptions> model::biases_of(const PositionBias& bias, const TransformerConfig& config,
                                               const Session& session, int64_t tokens) {
  int64_t distances = std::max<int64_t>(1, session.position + tokens);
  if (config.attention.sliding_window > 0 && config.attention.full_attention_interval == 0)
    distances = std::min(distances, config.attention.sliding_window);
  std::vector<AttentionOptions> biases = bias.biases(distances, session.position_scale.of_distances());
  for (AttentionOptions& options : biases) {
    options.causal = config.attention.causal;
    options.softmax_scale = static_cast<float>(config.attention.softmax_scale);
    options.sliding_window = config.attention.sliding_window;
    options.tolerance = config.attention.tolerance;
  }
  return biases;
}

model::TransformerLayers::TransformerLayers(const TransformerConfig& config_in) : config(config_in), positions(config) {
  for (int i = 0; i < config.layers; ++i) blocks.emplace_back(config, positions, i);
}

void model::TransformerLayers::declare(const model::VisitParameter& visit) {
  positions.declare(visit);
  if (config.embedding.norm) embedding_norm.declare(visit, "norm_e", config, config.d_model);
  for (model::Block& block : blocks) block.declare(visit);
  if (config.head.final_norm) final_norm.declare(visit, "norm_f", config, config.d_model);
}

Transformer::State::State(const TransformerConfig& config_in, std::optional<uint64_t> seed)
    : model::TransformerLayers((config_in.validate(), config_in)),
      parameters(model::make_parameters([this](const model::VisitParameter& visit) { declare(visit); }, seed)) {}

Tensor Transformer::State::forward(const Tensor& x_in, model::Keep keep, model::Pass& pass) const {
  const Tensor input = checked_input(x_in, config, DType::float32, "transformer");
  const int64_t batch = input.size(0), length = input.size(1), rows = batch * length, width = config.d_model;
  check(keep == model::Keep::nothing || !config.block.normed_attention,
        "[transformer training] the model normalizes the attention's output before it is added (normed_attention), "
        "which is supported in inference only");
  model::Sequences& sequences = pass.sequences;
  const int64_t count = sequences.cu_seqlens.empty() ? batch : std::ssize(sequences.cu_seqlens) - 1;
  check(sequences.sessions.empty() || std::ssize(sequences.sessions) == count,
        "[transformer] {} sessions were given for {} sequences, expected equal numbers", sequences.sessions.size(),
        count);
  for (size_t i = 0; i < sequences.session_count(); ++i) {
    model::Session& session = sequences.session(i);
    check(session.caches.empty() ||
              (session.caches.size() == blocks.size() && config.attention.causal && keep == model::Keep::nothing),
          "[transformer] {} caches were given for {} layers, expected one per layer, and only for the inference of a "
          "decoder",
          session.caches.size(), blocks.size());
    for (const KvCache& cache : session.caches) {
      check(cache.length() == session.position,
            "[transformer] a cache holds {} tokens, the input begins at position {}", cache.length(), session.position);
    }
    int64_t longest = 0;
    sequences.each({sequences.part(input, i)},
                   [&](std::span<Tensor> sequence) { longest = std::max(longest, sequence[0].size(1)); });
    session.biases = model::biases_of(*positions.bias, config, session, longest);
  }
  const kernels::ReuseBiases reuse;
  const nn::IntegerProducts integers(quantizes_activations && keep == model::Keep::nothing);
  model::PassMemory& memory = pass.memory;
  memory.prepare(config, {precision, keep}, batch, length);

  Tensor x = memory.first();
  Tensor entered = x.reshape(input.shape());
  for (size_t i = 0; i < sequences.session_count(); ++i) {
    sequences.each({sequences.part(input, i), sequences.part(entered, i)}, [&](std::span<Tensor> sequence) {
      positions.input->enter(sequence[0], sequences.session(i).position, sequence[1]);
    });
  }
  if (config.embedding.norm) {
    if (memory.entry.x.defined()) nn::convert(x, memory.entry.x);
    nn::norm(x, embedding_norm.parameters(), x, memory.entry.statistics);
  }
  const nn::BranchDropout dropout = pass.dropout(config.embedding.dropout, 0, model::Draw::embedding);
  if (dropout.probability > 0) nn::dropout(x, dropout.probability, dropout.random, x);
  model::ResidualStream stream(x, memory.branch, config.block.residual, memory.stream);
  stream.on_stream = pass.on_stream;
  for (const model::Block& block : blocks) block.forward(stream, pass);
  if (!config.head.final_norm && keep == model::Keep::nothing) {
    stream.end(memory.last, x);
    return x.reshape(input.shape());
  }
  const DType type = keep == model::Keep::nothing ? DType::float32 : memory.mode.type();
  Tensor y = Tensor::empty({rows, width}, type);
  config.head.final_norm ? stream.normalize(final_norm, memory.last, y) : stream.end(memory.last, y);
  return y.reshape(input.shape());
}

Tensor Transformer::State::backward(const Tensor& dy, model::Pass& pass) const {
  model::PassMemory& memory = pass.memory;
  const Tensor top = dy.reshape({memory.batch * memory.length, config.d_model});
  Tensor& dx = memory.stream;
  const bool branch_is_stream = precision == Precision::f32 && config.block.dropout == 0;
  const kernels::ReuseBiases reuse;
  model::ResidualGradient stream(dx, branch_is_stream ? Tensor() : memory.branch, config.block.residual);
  if (config.head.final_norm) {
    stream.final_norm_backward(top, final_norm, memory.last);
  } else {
    stream.end_backward(top, memory.last);
  }
  for (size_t i = blocks.size(); i-- > 0;) {
    blocks[i].backward(stream, pass);
    if (on_layer_gradients) on_layer_gradients(static_cast<int>(i));
  }
  const nn::BranchDropout dropout = pass.dropout(config.embedding.dropout, 0, model::Draw::embedding);
  if (dropout.probability > 0) nn::dropout_backward(dx, dropout.probability, dropout.random, dx);
  if (config.embedding.norm) {
    nn::norm_backward(dx, memory.entry.x, embedding_norm.parameters(), memory.entry.statistics, dx,
                      &embedding_norm.weight->gradient, model::gradient_of(embedding_norm.bias));
  }
  const Tensor dinput = dx.reshape(dy.shape());
  positions.input->enter_backward(dinput, pass.sequences.together.position);
  return dinput;
}

Transformer::Transformer(const TransformerConfig& config, uint64_t seed) : Transformer(config, std::optional(seed)) {}
Transformer::Transformer(const TransformerConfig& config, std::optional<uint64_t> seed)
    : state_(std::make_unique<State>(config, seed)) {}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

const TransformerConfig& Transformer::config() const { return state_->config; }
std::vector<std::vector<float>> Transformer::slopes() const {
  return model::slopes_of(*state_->positions.bias, config());
}
std::vector<Parameter>& Transformer::parameters() { return state_->parameters; }
const std::vector<Parameter>& Transformer::parameters() const { return state_->parameters; }

Tensor Transformer::operator()(const Tensor& x) const {
  model::Pass pass;
  return state_->forward(x, model::Keep::nothing, pass);
}

Tensor Transformer::forward(const Tensor& x, const StepSeed& seed) {
  model::Pass& pass = state_->training;
  pass.seed = seed;
  const auto [ranks, length] = pass.division = state_->division;
  pass.sequences.together.position = ranks != nullptr ? sequence_shard(length, ranks->rank, ranks->count).first : 0;
  return state_->forward(x, state_->recompute ? model::Keep::sums : model::Keep::all, pass);
}

Tensor Transformer::backward(const Tensor& dy_in) {
  model::Pass& pass = state_->training;
  const DType type = model::PassMode{precision()}.type();
  const Tensor dy = checked_input(dy_in, config(), type, "transformer backward");
  check(pass.memory.batch > 0 && dy.size(0) == pass.memory.batch && dy.size(1) == pass.memory.length,
        "[transformer backward] dy has shape {}, expected that of the last forward call, [{}, {}, {}]",
        to_string(dy.shape()), pass.memory.batch, pass.memory.length, config().d_model);
  check(parameters().empty() || parameters().front().gradient.defined(),
        "[transformer backward] the gradients are not allocated; call zero_gradients() first");
  return state_->backward(dy, pass);
}

void Transformer::zero_gradients() { alibi::model::zero_gradients(model::pointers_to(state_->parameters)); }

void Transformer::release_activations() { state_->training = model::Pass(); }

void Transformer::set_precision(Precision precision) {
  if (precision == state_->precision) return;
  state_->precision = precision;
  release_activations();
  weights_changed();
}
Precision Transformer::precision() const { return state_->precision; }

void Transformer::set_recompute(bool recompute) {
  if (recompute != state_->recompute) release_activations();
  state_->recompute = recompute;
}

void Transformer::weights_changed() { model::round_operands(model::pointers_to(state_->parameters), precision()); }

}  // namespace alibi
