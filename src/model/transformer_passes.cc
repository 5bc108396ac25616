// What a Transformer does: inference, and in training the forward and the backward pass side by side.
#include <algorithm>

#include "core/check.h"
#include "model/attention_observer.h"
#include "model/transformer_state.h"
#include "nn/elementwise.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rotary.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi {

nn::NormStatistics Transformer::State::statistics(int64_t rows) const {
  return {config.norm == Norm::layer_norm ? Tensor::empty({rows}) : Tensor(), Tensor::empty({rows})};
}

Transformer::State::Heads Transformer::State::split(const Tensor& qkv, int64_t batch, int64_t length) const {
  const int64_t heads = config.heads, kv = config.key_heads();
  const Tensor all = qkv.reshape({batch, length, heads + 2 * kv, config.head_dim()});
  return {all.slice(2, 0, heads), all.slice(2, heads, heads + kv), all.slice(2, heads + kv, heads + 2 * kv)};
}

void Transformer::State::enter(const Tensor& x, Tensor& y) const {
  const int64_t length = x.size(1);
  if (config.position == Position::sinusoidal) {
    add_positions(x, sinusoids.rows(length, config.d_model), y);
  } else if (config.position == Position::learned) {
    check(length <= config.max_length,
          "[transformer] learned positions end at {}, the input has length {}; no learned model runs past its table",
          config.max_length, length);
    add_positions(x, value(position_table), y);
  } else {
    nn::convert(x, y);
  }
}

void Transformer::State::rotate(Heads& heads) const {
  if (config.position != Position::rotary) return;
  nn::rotary(heads.q, 0, static_cast<float>(config.rotary_theta), heads.q);
  nn::rotary(heads.k, 0, static_cast<float>(config.rotary_theta), heads.k);
}

void Transformer::State::rotate_backward(Heads& dheads) const {
  if (config.position != Position::rotary) return;
  nn::rotary_backward(dheads.q, 0, static_cast<float>(config.rotary_theta), dheads.q);
  nn::rotary_backward(dheads.k, 0, static_cast<float>(config.rotary_theta), dheads.k);
}

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

Tensor Transformer::operator()(const Tensor& x_in) const {
  const State& s = *state_;
  const TransformerConfig& config = s.config;
  const Tensor input = checked_input(x_in, config, DType::float32, "transformer");
  const int64_t batch = input.size(0), length = input.size(1), rows = batch * length, width = config.d_model;
  const DType type = s.activation_type();

  Tensor x = Tensor::empty({batch, length, width});
  s.enter(input, x);
  x = x.reshape({rows, width});
  Tensor normed = Tensor::empty({rows, width}, type);
  Tensor branch = Tensor::empty({rows, width}, type);
  nn::NormStatistics statistics = s.statistics(rows);
  // The feed-forward layer works on this many rows at a time: its wide hidden layer never exists for all of them.
  const int64_t chunk = std::min<int64_t>(rows, 4096);
  Tensor up = Tensor::empty({chunk, up_dim(config)}, type);
  Tensor activated = Tensor::empty({chunk, config.ffn_dim()}, type);
  Tensor qkv = Tensor::empty({rows, qkv_dim(config)}, type);
  const Tensor* returning = nullptr;  // the branch that the next norm adds to the stream
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const State::Layer& layer = s.layers[i];
    nn::residual_norm(x, returning, {}, s.norm(layer.norm1_weight, layer.norm1_bias), x, nullptr, normed, statistics);
    nn::linear(normed, s.operand(layer.qkv_weight), s.optional_value(layer.qkv_bias), qkv);
    State::Heads heads = s.split(qkv, batch, length);
    s.rotate(heads);
    Tensor attended = normed.reshape({batch, length, config.heads, config.head_dim()});
    const AttentionOptions options = s.attention_options(nullptr, i);
    observe_attention(heads.q, heads.k, heads.v, options);
    attention(heads.q, heads.k, heads.v, options, attended);
    nn::linear(normed, s.operand(layer.out_weight), s.optional_value(layer.out_bias), branch);

    nn::residual_norm(x, &branch, {}, s.norm(layer.norm2_weight, layer.norm2_bias), x, nullptr, normed, statistics);
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t end = std::min(rows, begin + chunk);
      Tensor up_part = up.slice(0, 0, end - begin), activated_part = activated.slice(0, 0, end - begin);
      Tensor branch_part = branch.slice(0, begin, end);
      nn::linear(normed.slice(0, begin, end), s.operand(layer.up_weight), s.optional_value(layer.up_bias), up_part);
      nn::activate(config.activation, up_part, activated_part);
      nn::linear(activated_part, s.operand(layer.down_weight), s.optional_value(layer.down_bias), branch_part);
    }
    returning = &branch;
  }
  if (config.final_norm) {
    Tensor y = Tensor::empty({rows, width});
    if (returning != nullptr) nn::add(x, branch, x);
    const nn::NormParameters norm = s.norm(s.final_norm_weight, s.final_norm_bias);
    nn::residual_norm(x, nullptr, {}, norm, x, nullptr, y, statistics);
    x = y;
  } else if (returning != nullptr) {
    nn::add(x, branch, x);
  }
  return x.reshape({batch, length, width});
}

void Transformer::State::attend(size_t i, const Tensor& normed, TrainingBuffers::Kept& kept) {
  const Layer& layer = layers[i];
  const int64_t batch = buffers.batch, length = buffers.length;
  nn::linear(normed, operand(layer.qkv_weight), optional_value(layer.qkv_bias), kept.qkv);
  Heads heads = split(kept.qkv, batch, length);
  rotate(heads);
  Tensor attended = kept.attended.reshape({batch, length, config.heads, config.head_dim()});
  alibi::attention(heads.q, heads.k, heads.v, attention_options(&buffers.seed, i), attended, &kept.attention);
}

void Transformer::State::expand(size_t i, const Tensor& normed, TrainingBuffers::Kept& kept) {
  nn::linear(normed, operand(layers[i].up_weight), optional_value(layers[i].up_bias), kept.up);
}

Tensor Transformer::forward(const Tensor& x_in, const StepSeed& seed) {
  State& s = *state_;
  const TransformerConfig& config = s.config;
  const Tensor input = checked_input(x_in, config, DType::float32, "transformer");
  const int64_t batch = input.size(0), length = input.size(1), rows = batch * length, width = config.d_model;
  TrainingBuffers& b = s.buffers;
  b.prepare(config, s.mode, batch, length);
  b.seed = seed;

  // In float32 the stream is kept where it stands; else it goes on in a tensor of its own and rounded copies are kept.
  const bool rounds = s.mode.precision == Precision::bf16;
  Tensor x = (rounds ? b.stream : s.layers.empty() ? b.last : b.layers.front().x).reshape({batch, length, width});
  s.enter(input, x);
  x = x.reshape({rows, width});
  if (config.embedding_dropout > 0) {
    nn::dropout(x, config.embedding_dropout, s.draws(seed, 0, State::Draw::embedding), x);
  }
  const Tensor* returning = nullptr;  // the branch that the next norm adds to the stream
  nn::BranchDropout dropout;
  const auto add_and_norm = [&](const nn::NormParameters& norm, Tensor& kept, Tensor& y,
                                nn::NormStatistics& statistics) {
    Tensor sum = rounds ? x : kept;
    nn::residual_norm(x, returning, dropout, norm, sum, rounds ? &kept : nullptr, y, statistics);
    x = sum;
  };
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const State::Layer& layer = s.layers[i];
    TrainingBuffers::Layer& l = b.layers[i];
    TrainingBuffers::Kept& kept = s.kept_of(i);
    add_and_norm(s.norm(layer.norm1_weight, layer.norm1_bias), l.x, b.normed, l.statistics1);
    s.attend(i, b.normed, kept);
    nn::linear(kept.attended, s.operand(layer.out_weight), s.optional_value(layer.out_bias), b.branch);
    returning = &b.branch;
    dropout = s.dropout(seed, i, State::Draw::attention_output);

    add_and_norm(s.norm(layer.norm2_weight, layer.norm2_bias), l.middle, b.normed, l.statistics2);
    s.expand(i, b.normed, kept);
    nn::activate(config.activation, kept.up, b.activated);
    if (config.activation_dropout > 0) {
      nn::dropout(b.activated, config.activation_dropout, s.draws(seed, i, State::Draw::activation), b.activated);
    }
    nn::linear(b.activated, s.operand(layer.down_weight), s.optional_value(layer.down_bias), b.branch);
    dropout = s.dropout(seed, i, State::Draw::feed_forward);
  }
  Tensor y = Tensor::empty({rows, width}, s.activation_type());
  if (config.final_norm) {
    add_and_norm(s.norm(s.final_norm_weight, s.final_norm_bias), b.last, y, b.final_statistics);
  } else if (returning != nullptr) {
    if (dropout.probability > 0) nn::dropout(b.branch, dropout.probability, dropout.random, b.branch);
    nn::add(x, b.branch, y);
  } else {
    nn::convert(x, y);
  }
  return y.reshape({batch, length, width});
}

void Transformer::State::feed_forward_backward(size_t i) {
  TrainingBuffers& b = buffers;
  const Layer& layer = layers[i];
  const TrainingBuffers::Layer& l = b.layers[i];
  TrainingBuffers::Kept& kept = kept_of(i);
  const Tensor& dbranch = branch_gradient();
  // branch = down(dropout(activate(up(norm(middle)))))
  nn::normalize(l.middle, norm(layer.norm2_weight, layer.norm2_bias), l.statistics2, b.normed);
  if (mode.recompute) expand(i, b.normed, kept);
  nn::linear_backward(dbranch, b.activated, operand(layer.down_weight), &b.dhidden, nullptr, nullptr);
  const Random draw = draws(b.seed, i, Draw::activation);
  if (config.activation_dropout > 0) nn::dropout_backward(b.dhidden, config.activation_dropout, draw, b.dhidden);
  // The gradient of `up` takes the place of dhidden and the activated values that of `up`, or the other way round
  // where a gate makes `up` the wider one.
  const bool gated = nn::is_gated(config.activation);
  Tensor& dup = gated ? kept.up : b.dhidden;
  Tensor& activated = gated ? b.dhidden : kept.up;
  nn::activate_backward(config.activation, b.dhidden, kept.up, dup, &activated);
  if (config.activation_dropout > 0) nn::dropout(activated, config.activation_dropout, draw, activated);
  nn::linear_backward(dbranch, activated, operand(layer.down_weight), nullptr, gradient(layer.down_weight),
                      gradient(layer.down_bias));
  nn::linear_backward(dup, b.normed, operand(layer.up_weight), &b.dnormed, gradient(layer.up_weight),
                      gradient(layer.up_bias));
}

void Transformer::State::attention_branch_backward(size_t i) {
  TrainingBuffers& b = buffers;
  const Layer& layer = layers[i];
  const TrainingBuffers::Layer& l = b.layers[i];
  TrainingBuffers::Kept& kept = kept_of(i);
  const Tensor& dbranch = branch_gradient();
  // branch = out(attention(rotary(qkv(norm(x)))))
  nn::normalize(l.x, norm(layer.norm1_weight, layer.norm1_bias), l.statistics1, b.normed);
  if (mode.recompute) attend(i, b.normed, kept);
  nn::linear_backward(dbranch, kept.attended, operand(layer.out_weight), &b.dattended, gradient(layer.out_weight),
                      gradient(layer.out_bias));
  const Shape per_head{b.batch, b.length, config.heads, config.head_dim()};
  const Heads heads = split(kept.qkv, b.batch, b.length);
  Heads dheads = split(b.dqkv, b.batch, b.length);
  AttentionBiasGradients bias_gradients;
  if (config.position == Position::t5) bias_gradients.dtable = gradient(position_table);
  attention_backward(b.dattended.reshape(per_head), heads.q, heads.k, heads.v, kept.attended.reshape(per_head),
                     kept.attention, attention_options(&b.seed, i), dheads.q, dheads.k, dheads.v, bias_gradients);
  rotate_backward(dheads);
  nn::linear_backward(b.dqkv, b.normed, operand(layer.qkv_weight), &b.dnormed, gradient(layer.qkv_weight),
                      gradient(layer.qkv_bias));
}

Tensor Transformer::backward(const Tensor& dy_in) {
  State& s = *state_;
  const TransformerConfig& config = s.config;
  TrainingBuffers& b = s.buffers;
  const Tensor dy = checked_input(dy_in, config, s.activation_type(), "transformer backward");
  check(b.batch > 0 && dy.size(0) == b.batch && dy.size(1) == b.length,
        "[transformer backward] dy has shape {}, expected that of the last forward call, [{}, {}, {}]",
        to_string(dy.shape()), b.batch, b.length, config.d_model);
  check(s.parameters.empty() || s.parameters.front().gradient.defined(),
        "[transformer backward] there are no gradients to add to; call zero_gradients() first");
  const int64_t rows = b.batch * b.length, width = config.d_model;
  const Tensor top = dy.reshape({rows, width});

  // The gradient of the residual stream, top to bottom; at each norm, that of the branch below leaves it.
  Tensor& dx = b.stream;
  const auto leave = [&](const Tensor& dnormed, const Tensor& kept, int weight, int bias,
                         const nn::NormStatistics& statistics, const nn::BranchDropout& dropout, bool has_branch) {
    nn::residual_norm_backward(dnormed, kept, s.norm(weight, bias), statistics, dropout, dx,
                               has_branch && s.branch_gradient_is_apart() ? &b.branch : nullptr, s.gradient(weight),
                               s.gradient(bias));
  };
  const auto feed_forward_dropout = [&](size_t layer) { return s.dropout(b.seed, layer, State::Draw::feed_forward); };
  const size_t layers = s.layers.size();
  const nn::BranchDropout top_dropout = layers > 0 ? feed_forward_dropout(layers - 1) : nn::BranchDropout();
  if (config.final_norm) {
    dx.fill(0);
    leave(top, b.last, s.final_norm_weight, s.final_norm_bias, b.final_statistics, top_dropout, layers > 0);
  } else {
    nn::convert(top, dx);
    if (layers > 0 && s.branch_gradient_is_apart()) {
      nn::dropout_backward(dx, top_dropout.probability, top_dropout.random, b.branch);
    }
  }
  for (size_t i = layers; i-- > 0;) {
    const State::Layer& layer = s.layers[i];
    const TrainingBuffers::Layer& l = b.layers[i];
    s.feed_forward_backward(i);
    leave(b.dnormed, l.middle, layer.norm2_weight, layer.norm2_bias, l.statistics2,
          s.dropout(b.seed, i, State::Draw::attention_output), true);
    s.attention_branch_backward(i);
    leave(b.dnormed, l.x, layer.norm1_weight, layer.norm1_bias, l.statistics1,
          i > 0 ? feed_forward_dropout(i - 1) : nn::BranchDropout(), i > 0);
  }
  if (config.embedding_dropout > 0) {
    nn::dropout_backward(dx, config.embedding_dropout, s.draws(b.seed, 0, State::Draw::embedding), dx);
  }
  Tensor dinput = dx.reshape({b.batch, b.length, width});
  if (config.position == Position::learned) {
    Tensor rows_used = s.gradient(s.position_table)->slice(0, 0, b.length);
    add_positions_backward(dinput, rows_used);
  }
  return dinput;
}

}  // namespace alibi
