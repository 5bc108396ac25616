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

void Transformer::State::norm(const Tensor& x, int weight, int bias, Tensor& y, NormStatistics& statistics) const {
  reuse(statistics.rstd, {x.size(0)});
  if (config.norm == Norm::rms_norm) {
    nn::rms_norm(x, value(weight), config.norm_eps, y, statistics.rstd);
  } else {
    reuse(statistics.mean, {x.size(0)});
    nn::layer_norm(x, value(weight), optional_value(bias), config.norm_eps, y, statistics.mean, statistics.rstd);
  }
}

void Transformer::State::norm_backward(const Tensor& dy, const Tensor& x, int weight, int bias,
                                       const NormStatistics& statistics, Tensor& dx) {
  if (config.norm == Norm::rms_norm) {
    nn::rms_norm_backward(dy, x, value(weight), statistics.rstd, dx, gradient(weight));
  } else {
    nn::layer_norm_backward(dy, x, value(weight), statistics.mean, statistics.rstd, dx, gradient(weight),
                            gradient(bias));
  }
}

Transformer::State::Heads Transformer::State::split(const Tensor& qkv, int64_t batch, int64_t length) const {
  const int64_t heads = config.heads, kv = config.key_heads();
  const Tensor all = qkv.reshape({batch, length, heads + 2 * kv, config.head_dim()});
  return {all.slice(2, 0, heads), all.slice(2, heads, heads + kv), all.slice(2, heads + kv, heads + 2 * kv)};
}

/// Positions that enter below the first layer.
Tensor Transformer::State::enter(const Tensor& x) const {
  const int64_t length = x.size(1);
  if (config.position == Position::sinusoidal) {
    Tensor y = Tensor::empty(x.shape());
    add_positions(x, sinusoids.rows(length, config.d_model), y);
    return y;
  }
  if (config.position == Position::learned) {
    check(length <= config.max_length,
          "[transformer] learned positions end at {}, the input has length {}; no learned model runs past its table",
          config.max_length, length);
    Tensor y = Tensor::empty(x.shape());
    add_positions(x, value(position_table), y);
    return y;
  }
  return x;
}

namespace {

Tensor checked_input(const Tensor& x, const TransformerConfig& config, const char* operation) {
  check(x.axes() == 3 && x.size(2) == config.d_model && x.dtype() == DType::float32,
        "[{}] x is {} {}, expected float32 [batch, length, {}]", operation, name_of(x.dtype()), to_string(x.shape()),
        config.d_model);
  check(x.size(0) > 0 && x.size(1) > 0, "[{}] x has shape {}, expected at least one token", operation,
        to_string(x.shape()));
  return x.contiguous() ? x : x.clone();
}

}  // namespace

Tensor Transformer::operator()(const Tensor& x_in) const {
  const State& s = *state_;
  const TransformerConfig& config = s.config;
  const Tensor input = checked_input(x_in, config, "transformer");
  const int64_t batch = input.size(0), length = input.size(1), rows = batch * length, width = config.d_model;

  const Tensor entered = s.enter(input).reshape({rows, width});
  Tensor x = entered.raw() == x_in.raw() ? entered.clone() : entered;  // x is written to, the caller's is not
  Tensor normed = Tensor::empty({rows, width});
  Tensor branch = Tensor::empty({rows, width});
  State::NormStatistics statistics;
  // The feed-forward layer works on this many rows at a time: its wide hidden layer never exists for all of them.
  const int64_t chunk = std::min<int64_t>(rows, 4096);
  Tensor up = Tensor::empty({chunk, s.up_dim()});
  Tensor activated = Tensor::empty({chunk, config.ffn_dim()});
  {
    Tensor qkv = Tensor::empty({rows, s.qkv_dim()});
    for (size_t i = 0; i < s.layers.size(); ++i) {
      const State::Layer& layer = s.layers[i];
      s.norm(x, layer.norm1_weight, layer.norm1_bias, normed, statistics);
      nn::linear(normed, s.value(layer.qkv_weight), s.optional_value(layer.qkv_bias), qkv);
      State::Heads heads = s.split(qkv, batch, length);
      if (config.position == Position::rotary) {
        nn::rotary(heads.q, 0, static_cast<float>(config.rotary_theta), heads.q);
        nn::rotary(heads.k, 0, static_cast<float>(config.rotary_theta), heads.k);
      }
      Tensor attended = normed.reshape({batch, length, config.heads, config.head_dim()});
      const AttentionOptions options = s.attention_options(nullptr, i);
      observe_attention(heads.q, heads.k, heads.v, options);
      attention(heads.q, heads.k, heads.v, options, attended);
      nn::linear(normed, s.value(layer.out_weight), s.optional_value(layer.out_bias), branch);
      nn::add_in_place(x, branch);

      s.norm(x, layer.norm2_weight, layer.norm2_bias, normed, statistics);
      for (int64_t begin = 0; begin < rows; begin += chunk) {
        const int64_t end = std::min(rows, begin + chunk);
        Tensor up_part = up.slice(0, 0, end - begin), activated_part = activated.slice(0, 0, end - begin);
        Tensor branch_part = branch.slice(0, begin, end);
        nn::linear(normed.slice(0, begin, end), s.value(layer.up_weight), s.optional_value(layer.up_bias), up_part);
        nn::activate(config.activation, up_part, activated_part);
        nn::linear(activated_part, s.value(layer.down_weight), s.optional_value(layer.down_bias), branch_part);
      }
      nn::add_in_place(x, branch);
    }
  }
  if (config.final_norm) {
    s.norm(x, s.final_norm_weight, s.final_norm_bias, normed, statistics);
    x = normed;
  }
  return x.reshape({batch, length, width});
}

Tensor Transformer::forward(const Tensor& x_in, const StepSeed& seed) {
  State& s = *state_;
  const TransformerConfig& config = s.config;
  const Tensor input = checked_input(x_in, config, "transformer");
  const int64_t batch = input.size(0), length = input.size(1), rows = batch * length, width = config.d_model;
  State::Activations& a = s.activations;
  a.batch = batch;
  a.length = length;
  a.seed = seed;
  a.layers.resize(s.layers.size());
  Tensor& branch = reuse(s.scratch.projected, {rows, width});

  Tensor x = s.enter(input).reshape({rows, width});
  if (x.raw() == x_in.raw()) x = x.clone();  // backward needs it, and the caller may reuse theirs
  if (config.embedding_dropout > 0) {
    nn::dropout(x, config.embedding_dropout, s.draws(seed, 0, State::Draw::embedding), x);
  }
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const State::Layer& layer = s.layers[i];
    State::LayerActivations& l = a.layers[i];
    l.x = x;
    s.norm(l.x, layer.norm1_weight, layer.norm1_bias, reuse(l.normed1, {rows, width}), l.statistics1);
    nn::linear(l.normed1, s.value(layer.qkv_weight), s.optional_value(layer.qkv_bias),
               reuse(l.qkv, {rows, s.qkv_dim()}));
    State::Heads heads = s.split(l.qkv, batch, length);
    if (config.position == Position::rotary) {
      nn::rotary(heads.q, 0, static_cast<float>(config.rotary_theta), heads.q);
      nn::rotary(heads.k, 0, static_cast<float>(config.rotary_theta), heads.k);
    }
    Tensor attended = reuse(l.attended, {rows, width}).reshape({batch, length, config.heads, config.head_dim()});
    attention(heads.q, heads.k, heads.v, s.attention_options(&seed, i), attended, &l.attention);
    nn::linear(l.attended, s.value(layer.out_weight), s.optional_value(layer.out_bias), branch);
    if (config.dropout > 0)
      nn::dropout(branch, config.dropout, s.draws(seed, i, State::Draw::attention_output), branch);
    nn::add(l.x, branch, reuse(l.middle, {rows, width}));

    s.norm(l.middle, layer.norm2_weight, layer.norm2_bias, reuse(l.normed2, {rows, width}), l.statistics2);
    nn::linear(l.normed2, s.value(layer.up_weight), s.optional_value(layer.up_bias), reuse(l.up, {rows, s.up_dim()}));
    nn::activate(config.activation, l.up, reuse(l.activated, {rows, config.ffn_dim()}));
    if (config.activation_dropout > 0) {
      nn::dropout(l.activated, config.activation_dropout, s.draws(seed, i, State::Draw::activation), l.activated);
    }
    nn::linear(l.activated, s.value(layer.down_weight), s.optional_value(layer.down_bias), branch);
    if (config.dropout > 0) nn::dropout(branch, config.dropout, s.draws(seed, i, State::Draw::feed_forward), branch);
    // The output of a layer is the input of the next, which keeps it; the last one's is kept by the final norm.
    Tensor& next = i + 1 < s.layers.size() ? a.layers[i + 1].x : a.last;
    nn::add(l.middle, branch, reuse(next, {rows, width}));
    x = next;
  }
  if (s.layers.empty()) a.last = x;
  Tensor y = Tensor::empty({rows, width});
  if (config.final_norm) {
    s.norm(a.last, s.final_norm_weight, s.final_norm_bias, y, a.final_statistics);
  } else {
    y.copy_from(a.last);
  }
  return y.reshape({batch, length, width});
}

Tensor Transformer::backward(const Tensor& dy_in) {
  State& s = *state_;
  const TransformerConfig& config = s.config;
  State::Activations& a = s.activations;
  const Tensor dy = checked_input(dy_in, config, "transformer backward");
  check(a.batch > 0 && dy.size(0) == a.batch && dy.size(1) == a.length,
        "[transformer backward] dy has shape {}, expected that of the last forward call, [{}, {}, {}]",
        to_string(dy.shape()), a.batch, a.length, config.d_model);
  check(s.parameters.empty() || s.parameters.front().gradient.defined(),
        "[transformer backward] there are no gradients to add to; call zero_gradients() first");
  const int64_t rows = a.batch * a.length, width = config.d_model;
  State::Scratch& w = s.scratch;

  Tensor dx = Tensor::empty({rows, width});  // gradient of the residual stream, top to bottom
  if (config.final_norm) {
    s.norm_backward(dy.reshape({rows, width}), a.last, s.final_norm_weight, s.final_norm_bias, a.final_statistics, dx);
  } else {
    dx.copy_from(dy.reshape({rows, width}));
  }
  for (size_t i = s.layers.size(); i-- > 0;) {
    const State::Layer& layer = s.layers[i];
    State::LayerActivations& l = a.layers[i];
    // next = middle + dropout(down(dropout(activate(up(norm(middle))))))
    Tensor dbranch = dx;
    if (config.dropout > 0) {
      dbranch = reuse(w.dbranch, {rows, width});
      nn::dropout_backward(dx, config.dropout, s.draws(a.seed, i, State::Draw::feed_forward), dbranch);
    }
    nn::linear_backward(dbranch, l.activated, s.value(layer.down_weight),
                        &reuse(w.dactivated, {rows, config.ffn_dim()}), s.gradient(layer.down_weight),
                        s.gradient(layer.down_bias));
    if (config.activation_dropout > 0) {
      nn::dropout_backward(w.dactivated, config.activation_dropout, s.draws(a.seed, i, State::Draw::activation),
                           w.dactivated);
    }
    nn::activate_backward(config.activation, w.dactivated, l.up, reuse(w.dup, {rows, s.up_dim()}));
    nn::linear_backward(w.dup, l.normed2, s.value(layer.up_weight), &reuse(w.dnormed, {rows, width}),
                        s.gradient(layer.up_weight), s.gradient(layer.up_bias));
    s.norm_backward(w.dnormed, l.middle, layer.norm2_weight, layer.norm2_bias, l.statistics2,
                    reuse(w.dy, {rows, width}));
    nn::add_in_place(dx, w.dy);

    // middle = x + dropout(out(attention(rotary(qkv(norm(x))))))
    dbranch = dx;
    if (config.dropout > 0) {
      dbranch = reuse(w.dbranch, {rows, width});
      nn::dropout_backward(dx, config.dropout, s.draws(a.seed, i, State::Draw::attention_output), dbranch);
    }
    nn::linear_backward(dbranch, l.attended, s.value(layer.out_weight), &reuse(w.dattended, {rows, width}),
                        s.gradient(layer.out_weight), s.gradient(layer.out_bias));
    const Shape per_head{a.batch, a.length, config.heads, config.head_dim()};
    const State::Heads heads = s.split(l.qkv, a.batch, a.length);
    State::Heads dheads = s.split(reuse(w.dqkv, {rows, s.qkv_dim()}), a.batch, a.length);
    AttentionBiasGradients bias_gradients;
    if (config.position == Position::t5) bias_gradients.dtable = s.gradient(s.position_table);
    attention_backward(w.dattended.reshape(per_head), heads.q, heads.k, heads.v, l.attended.reshape(per_head),
                       l.attention, s.attention_options(&a.seed, i), dheads.q, dheads.k, dheads.v, bias_gradients);
    if (config.position == Position::rotary) {
      nn::rotary_backward(dheads.q, 0, static_cast<float>(config.rotary_theta), dheads.q);
      nn::rotary_backward(dheads.k, 0, static_cast<float>(config.rotary_theta), dheads.k);
    }
    nn::linear_backward(w.dqkv, l.normed1, s.value(layer.qkv_weight), &reuse(w.dnormed, {rows, width}),
                        s.gradient(layer.qkv_weight), s.gradient(layer.qkv_bias));
    s.norm_backward(w.dnormed, l.x, layer.norm1_weight, layer.norm1_bias, l.statistics1, reuse(w.dy, {rows, width}));
    nn::add_in_place(dx, w.dy);
  }
  if (config.embedding_dropout > 0) {
    nn::dropout_backward(dx, config.embedding_dropout, s.draws(a.seed, 0, State::Draw::embedding), dx);
  }
  if (config.position == Position::learned) {
    Tensor rows_used = s.gradient(s.position_table)->slice(0, 0, a.length);
    add_positions_backward(dx.reshape({a.batch, a.length, width}), rows_used);
  }
  return dx.reshape({a.batch, a.length, width});
}

}  // namespace alibi
