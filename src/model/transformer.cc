#include "alibi/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "alibi/attention.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "model/attention_observer.h"
#include "model/position_embedding.h"
#include "nn/activation.h"
#include "nn/elementwise.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rotary.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi {
namespace {

/// Reuses a tensor's memory from step to step where the shape stays.
Tensor& reuse(Tensor& tensor, const Shape& shape) {
  if (!tensor.defined() || tensor.shape() != shape) {
    tensor = Tensor();  // free before allocating: the peak holds one of them
    tensor = Tensor::empty(shape);
  }
  return tensor;
}

/// Places of a layer's parameters in the list; -1: there is none.
struct Layer {
  int norm1_weight, norm1_bias, qkv_weight, qkv_bias, out_weight, out_bias;
  int norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
};

/// Mean and 1 / standard deviation of each row, as the norms leave them.
struct NormStatistics {
  Tensor mean, rstd;  // [R]
};

/// What the backward pass of a layer needs, in the order the forward pass makes it.
struct LayerActivations {
  Tensor x;  // [R, C] input
  NormStatistics statistics1;
  Tensor normed1;   // [R, C]
  Tensor qkv;       // [R, (H + 2K) * D], rotated where positions are rotary
  Tensor attended;  // [R, C]
  AttentionState attention;
  Tensor middle;  // [R, C] after the attention's residual
  NormStatistics statistics2;
  Tensor normed2;    // [R, C]
  Tensor up;         // [R, F], gated: [R, 2F]
  Tensor activated;  // [R, F]
};

struct Activations {
  int64_t batch = 0, length = 0;
  StepSeed seed;
  std::vector<LayerActivations> layers;
  Tensor last;  // [R, C] input of the final norm
  NormStatistics final_statistics;
};

/// Gradients on their way down; one set serves all layers.
struct Scratch {
  Tensor dy, dbranch, dnormed, dup, dactivated, dqkv, dattended, projected;
};

enum class Draw : uint64_t { attention_weights, attention_output, feed_forward };

}  // namespace

struct Transformer::State {
  TransformerConfig config;
  std::vector<Parameter> parameters;
  std::vector<Layer> layers;
  int final_norm_weight = -1, final_norm_bias = -1;
  int position_table = -1;  // learned: wpe; t5: relative_bias
  SinusoidalTable sinusoids;
  AttentionOptions attention;  // what does not change from call to call
  Activations activations;
  Scratch scratch;

  State(const TransformerConfig& config_in, uint64_t seed);

  int add(const std::string& name, const Shape& shape, float deviation, float mean, bool decays, uint64_t seed);
  const Tensor& value(int index) const { return parameters[static_cast<size_t>(index)].value; }
  const Tensor* optional_value(int index) const { return index < 0 ? nullptr : &value(index); }
  Tensor* gradient(int index) { return index < 0 ? nullptr : &parameters[static_cast<size_t>(index)].gradient; }

  int qkv_dim() const { return (config.heads + 2 * config.key_heads()) * config.head_dim(); }
  int up_dim() const { return config.ffn_dim() * (nn::is_gated(config.activation) ? 2 : 1); }

  AttentionOptions attention_options(const StepSeed* step, size_t layer) const;
  void norm(const Tensor& x, int weight, int bias, Tensor& y, NormStatistics& statistics) const;
  void norm_backward(const Tensor& dy, const Tensor& x, int weight, int bias, const NormStatistics& statistics,
                     Tensor& dx);
  /// Queries, keys, values of a [R, (H + 2K) * D] tensor as [B, T, heads, D] views.
  struct Heads {
    Tensor q, k, v;
  };
  Heads split(const Tensor& qkv, int64_t batch, int64_t length) const;
  Tensor enter(const Tensor& x) const;
  Random draws(const StepSeed& seed, size_t layer, Draw what) const {
    return Random(seed.seed, mix(seed.step, seed.part, layer, static_cast<uint64_t>(what)));
  }
};

Transformer::State::State(const TransformerConfig& config_in, uint64_t seed) : config(config_in) {
  config.validate();
  const int width = config.d_model;
  const int hidden = config.ffn_dim();
  // Linear layers start with the variance of PyTorch's default, 1 / (3 fan_in); projections back into the residual
  // stream are divided by sqrt(2 * layers), as in GPT-2 and MPT, so that its variance does not grow with depth.
  const auto deviation = [](int fan_in) { return std::sqrt(1.0f / (3.0f * static_cast<float>(fan_in))); };
  const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(std::max(config.layers, 1)));
  const bool norm_bias = config.bias && config.norm == Norm::layer_norm;
  const auto optional = [&](bool wanted, const std::string& name, int64_t extent) {
    return wanted ? add(name, {extent}, 0, 0, false, seed) : -1;
  };

  if (config.position == Position::learned) {
    position_table = add("wpe.weight", {config.max_length, width}, 0.02f, 0, false, seed);
  } else if (config.position == Position::t5) {
    position_table = add("relative_bias.weight", {config.t5_buckets, config.heads}, 0.02f, 0, false, seed);
  }
  for (int i = 0; i < config.layers; ++i) {
    const std::string at = fmt::format("blocks.{}.", i);
    Layer layer{};
    layer.norm1_weight = add(at + "norm_1.weight", {width}, 0, 1, false, seed);
    layer.norm1_bias = optional(norm_bias, at + "norm_1.bias", width);
    layer.qkv_weight = add(at + "attn.Wqkv.weight", {qkv_dim(), width}, deviation(width), 0, true, seed);
    layer.qkv_bias = optional(config.bias, at + "attn.Wqkv.bias", qkv_dim());
    layer.out_weight = add(at + "attn.out_proj.weight", {width, width}, deviation(width) * residual, 0, true, seed);
    layer.out_bias = optional(config.bias, at + "attn.out_proj.bias", width);
    layer.norm2_weight = add(at + "norm_2.weight", {width}, 0, 1, false, seed);
    layer.norm2_bias = optional(norm_bias, at + "norm_2.bias", width);
    layer.up_weight = add(at + "ffn.up_proj.weight", {up_dim(), width}, deviation(width), 0, true, seed);
    layer.up_bias = optional(config.bias, at + "ffn.up_proj.bias", up_dim());
    layer.down_weight = add(at + "ffn.down_proj.weight", {width, hidden}, deviation(hidden) * residual, 0, true, seed);
    layer.down_bias = optional(config.bias, at + "ffn.down_proj.bias", width);
    layers.push_back(layer);
  }
  if (config.final_norm) {
    final_norm_weight = add("norm_f.weight", {width}, 0, 1, false, seed);
    final_norm_bias = optional(norm_bias, "norm_f.bias", width);
  }

  attention.causal = config.causal;
  if (config.position == Position::alibi) {
    attention.tolerance = config.tolerance;
    attention.slopes = slopes(config.heads, config.alibi_bias_max);
    const size_t heads = static_cast<size_t>(config.heads);
    if (!config.causal && config.bidirectional == Bidirectional::one_sided) {
      constexpr float closed = std::numeric_limits<float>::infinity();
      const std::vector<float> half = slopes((config.heads + 1) / 2, config.alibi_bias_max);
      attention.slopes_after.resize(heads);
      for (size_t h = 0; h < heads; ++h) {
        attention.slopes[h] = h % 2 == 0 ? half[h / 2] : closed;
        attention.slopes_after[h] = h % 2 == 0 ? closed : half[h / 2];
      }
    } else if (!config.causal && config.bidirectional == Bidirectional::two_slopes) {
      const std::vector<float> both = slopes(2 * config.heads, config.alibi_bias_max);
      attention.slopes_after.resize(heads);
      for (size_t h = 0; h < heads; ++h) {
        attention.slopes[h] = both[2 * h];
        attention.slopes_after[h] = both[2 * h + 1];
      }
    }
  }
}

int Transformer::State::add(const std::string& name, const Shape& shape, float deviation, float mean, bool decays,
                            uint64_t seed) {
  const uint64_t stream = mix(0x1417, parameters.size());
  Parameter parameter{name, Tensor::empty(shape), Tensor(), decays};
  float* values = parameter.value.data<float>();
  const Random random(seed, stream);
  parallel_ranges(parameter.value.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      values[i] = mean + (deviation > 0 ? deviation * random.normal(static_cast<uint64_t>(i)) : 0);
    }
  });
  parameters.push_back(std::move(parameter));
  return static_cast<int>(parameters.size()) - 1;
}

AttentionOptions Transformer::State::attention_options(const StepSeed* step, size_t layer) const {
  AttentionOptions options = attention;
  if (config.position == Position::t5) options.buckets = BucketedBias{value(position_table), config.t5_max_distance};
  if (step != nullptr && config.attention_dropout > 0) {
    options.dropout = config.attention_dropout;
    options.dropout_seed = mix(step->seed, step->step, step->part, layer);
  }
  return options;
}

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

Transformer::Transformer(const TransformerConfig& config, uint64_t seed)
    : state_(std::make_unique<State>(config, seed)) {}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

const TransformerConfig& Transformer::config() const { return state_->config; }
std::vector<Parameter>& Transformer::parameters() { return state_->parameters; }
const std::vector<Parameter>& Transformer::parameters() const { return state_->parameters; }

void Transformer::zero_gradients() {
  for (Parameter& parameter : state_->parameters) {
    if (parameter.gradient.defined()) {
      parameter.gradient.fill(0);
    } else {
      parameter.gradient = Tensor(parameter.value.shape());
    }
  }
}

void Transformer::release_activations() {
  state_->activations = Activations();
  state_->scratch = Scratch();
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
  NormStatistics statistics;
  // The feed-forward layer works on this many rows at a time: its wide hidden layer never exists for all of them.
  const int64_t chunk = std::min<int64_t>(rows, 4096);
  Tensor up = Tensor::empty({chunk, s.up_dim()});
  Tensor activated = Tensor::empty({chunk, config.ffn_dim()});
  {
    Tensor qkv = Tensor::empty({rows, s.qkv_dim()});
    for (size_t i = 0; i < s.layers.size(); ++i) {
      const Layer& layer = s.layers[i];
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
  Activations& a = s.activations;
  a.batch = batch;
  a.length = length;
  a.seed = seed;
  a.layers.resize(s.layers.size());
  Tensor& branch = reuse(s.scratch.projected, {rows, width});

  Tensor x = s.enter(input).reshape({rows, width});
  if (x.raw() == x_in.raw()) x = x.clone();  // backward needs it, and the caller may reuse theirs
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const Layer& layer = s.layers[i];
    LayerActivations& l = a.layers[i];
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
    if (config.dropout > 0) nn::dropout(branch, config.dropout, s.draws(seed, i, Draw::attention_output), branch);
    nn::add(l.x, branch, reuse(l.middle, {rows, width}));

    s.norm(l.middle, layer.norm2_weight, layer.norm2_bias, reuse(l.normed2, {rows, width}), l.statistics2);
    nn::linear(l.normed2, s.value(layer.up_weight), s.optional_value(layer.up_bias), reuse(l.up, {rows, s.up_dim()}));
    nn::activate(config.activation, l.up, reuse(l.activated, {rows, config.ffn_dim()}));
    nn::linear(l.activated, s.value(layer.down_weight), s.optional_value(layer.down_bias), branch);
    if (config.dropout > 0) nn::dropout(branch, config.dropout, s.draws(seed, i, Draw::feed_forward), branch);
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
  Activations& a = s.activations;
  const Tensor dy = checked_input(dy_in, config, "transformer backward");
  check(a.batch > 0 && dy.size(0) == a.batch && dy.size(1) == a.length,
        "[transformer backward] dy has shape {}, expected that of the last forward call, [{}, {}, {}]",
        to_string(dy.shape()), a.batch, a.length, config.d_model);
  check(s.parameters.empty() || s.parameters.front().gradient.defined(),
        "[transformer backward] there are no gradients to add to; call zero_gradients() first");
  const int64_t rows = a.batch * a.length, width = config.d_model;
  Scratch& w = s.scratch;

  Tensor dx = Tensor::empty({rows, width});  // gradient of the residual stream, top to bottom
  if (config.final_norm) {
    s.norm_backward(dy.reshape({rows, width}), a.last, s.final_norm_weight, s.final_norm_bias, a.final_statistics, dx);
  } else {
    dx.copy_from(dy.reshape({rows, width}));
  }
  for (size_t i = s.layers.size(); i-- > 0;) {
    const Layer& layer = s.layers[i];
    LayerActivations& l = a.layers[i];
    // next = middle + dropout(down(activate(up(norm(middle)))))
    Tensor dbranch = dx;
    if (config.dropout > 0) {
      dbranch = reuse(w.dbranch, {rows, width});
      nn::dropout_backward(dx, config.dropout, s.draws(a.seed, i, Draw::feed_forward), dbranch);
    }
    nn::linear_backward(dbranch, l.activated, s.value(layer.down_weight),
                        &reuse(w.dactivated, {rows, config.ffn_dim()}), s.gradient(layer.down_weight),
                        s.gradient(layer.down_bias));
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
      nn::dropout_backward(dx, config.dropout, s.draws(a.seed, i, Draw::attention_output), dbranch);
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
  if (config.position == Position::learned) {
    Tensor rows_used = s.gradient(s.position_table)->slice(0, 0, a.length);
    add_positions_backward(dx.reshape({a.batch, a.length, width}), rows_used);
  }
  return dx.reshape({a.batch, a.length, width});
}

}  // namespace alibi
