// Making a Transformer: its parameters, how they start, and the attention its position method asks for.
#include "alibi/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "model/round_operand.h"
#include "model/transformer_state.h"

namespace alibi {
namespace {

/// What the matrices of a layer, and the biases that are not zero, start as.
struct Starts {
  Start qkv, out, up, down, wide_bias, down_bias;

  explicit Starts(const TransformerConfig& config)
      : qkv(Start::constant(0)), out(qkv), up(qkv), down(qkv), wide_bias(qkv), down_bias(qkv) {
    const int width = config.d_model, hidden = config.ffn_dim();
    if (config.initialization == Initialization::fairseq) {
      qkv = Start::xavier(width, width, 1 / std::numbers::sqrt2_v<float>);
      out = Start::xavier(width, width);
      up = wide_bias = Start::linear(width);
      down = down_bias = Start::linear(hidden);
      return;
    }
    // Linear layers start with the variance of PyTorch's default, 1 / (3 fan_in); projections back into the residual
    // stream are divided by sqrt(2 * layers), as in GPT-2 and MPT, so that its variance does not grow with depth.
    const auto deviation = [](int fan_in) { return std::sqrt(1.0f / (3.0f * static_cast<float>(fan_in))); };
    const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(std::max(config.layers, 1)));
    qkv = up = Start::normal(deviation(width));
    out = Start::normal(deviation(width) * residual);
    down = Start::normal(deviation(hidden) * residual);
  }
};

}  // namespace

Transformer::State::State(const TransformerConfig& config_in, uint64_t seed) : config(config_in) {
  config.validate();
  const int width = config.d_model;
  const int hidden = config.ffn_dim();
  const bool norm_bias = config.bias && config.norm == Norm::layer_norm;
  const Starts starts(config);
  const auto optional = [&](bool wanted, const std::string& name, int64_t extent, Start start) {
    return wanted ? add(name, {extent}, start, false, seed) : -1;
  };
  const Start zero = Start::constant(0), one = Start::constant(1);

  if (config.position == Position::learned) {
    position_table = add("wpe.weight", {config.max_length, width}, Start::normal(0.02f), false, seed);
  } else if (config.position == Position::t5) {
    position_table = add("relative_bias.weight", {config.t5_buckets, config.heads}, Start::normal(0.02f), false, seed);
  }
  for (int i = 0; i < config.layers; ++i) {
    const std::string at = fmt::format("blocks.{}.", i);
    Layer layer{};
    layer.norm1_weight = add(at + "norm_1.weight", {width}, one, false, seed);
    layer.norm1_bias = optional(norm_bias, at + "norm_1.bias", width, zero);
    layer.qkv_weight = add(at + "attn.Wqkv.weight", {qkv_dim(config), width}, starts.qkv, true, seed);
    layer.qkv_bias = optional(config.bias, at + "attn.Wqkv.bias", qkv_dim(config), starts.wide_bias);
    layer.out_weight = add(at + "attn.out_proj.weight", {width, width}, starts.out, true, seed);
    layer.out_bias = optional(config.bias, at + "attn.out_proj.bias", width, zero);
    layer.norm2_weight = add(at + "norm_2.weight", {width}, one, false, seed);
    layer.norm2_bias = optional(norm_bias, at + "norm_2.bias", width, zero);
    layer.up_weight = add(at + "ffn.up_proj.weight", {up_dim(config), width}, starts.up, true, seed);
    layer.up_bias = optional(config.bias, at + "ffn.up_proj.bias", up_dim(config), starts.wide_bias);
    layer.down_weight = add(at + "ffn.down_proj.weight", {width, hidden}, starts.down, true, seed);
    layer.down_bias = optional(config.bias, at + "ffn.down_proj.bias", width, starts.down_bias);
    layers.push_back(layer);
  }
  if (config.final_norm) {
    final_norm_weight = add("norm_f.weight", {width}, one, false, seed);
    final_norm_bias = optional(norm_bias, "norm_f.bias", width, zero);
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

int Transformer::State::add(const std::string& name, const Shape& shape, Start start, bool decays, uint64_t seed) {
  Parameter parameter{name, Tensor::empty(shape), Tensor(), decays};
  initialize(parameter.value, start, Random(seed, mix(0x1417, parameters.size())));
  parameters.push_back(std::move(parameter));
  return static_cast<int>(parameters.size()) - 1;
}

AttentionOptions Transformer::State::attention_options(const StepSeed* step, size_t layer) const {
  AttentionOptions options = attention;
  if (mode.precision == Precision::bf16 && options.tolerance > 0) {
    options.tolerance = std::max(options.tolerance, 0x1p-11f);
  }
  if (config.position == Position::t5) options.buckets = BucketedBias{value(position_table), config.t5_max_distance};
  if (step != nullptr && config.attention_dropout > 0) {
    options.dropout = config.attention_dropout;
    options.dropout_seed = mix(step->seed, step->step, step->part, layer);
  }
  return options;
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

void Transformer::release_activations() { state_->buffers = TrainingBuffers(); }

void Transformer::set_precision(Precision precision) {
  if (precision == state_->mode.precision) return;
  state_->mode.precision = precision;
  state_->buffers = TrainingBuffers();
  for (Parameter& parameter : state_->parameters) parameter.rounded = Tensor();
  weights_changed();
}
Precision Transformer::precision() const { return state_->mode.precision; }

void Transformer::set_recompute(bool recompute) {
  if (recompute != state_->mode.recompute) state_->buffers = TrainingBuffers();
  state_->mode.recompute = recompute;
}

void Transformer::weights_changed() {
  if (precision() != Precision::bf16) return;
  for (const State::Layer& layer : state_->layers) {
    for (const int index : {layer.qkv_weight, layer.out_weight, layer.up_weight, layer.down_weight}) {
      round_operand(state_->parameters[static_cast<size_t>(index)]);
    }
  }
}

}  // namespace alibi
