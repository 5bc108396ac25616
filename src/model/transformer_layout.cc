#include "model/transformer_layout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "model/training_buffers.h"

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

TransformerLayout::TransformerLayout(const TransformerConfig& config) {
  config.validate();
  const int width = config.d_model;
  const int hidden = config.ffn_dim();
  const bool norm_bias = config.bias && config.norm == Norm::layer_norm;
  const Starts starts(config);
  const auto optional = [&](bool wanted, const std::string& name, int64_t extent, Start start) {
    return wanted ? add(name, {extent}, start, false) : -1;
  };
  const Start zero = Start::constant(0), one = Start::constant(1);

  if (config.position == Position::learned) {
    position_table = add("wpe.weight", {config.max_length, width}, Start::normal(0.02f), false);
  } else if (config.position == Position::t5) {
    position_table = add("relative_bias.weight", {config.t5_buckets, config.heads}, Start::normal(0.02f), false);
  }
  for (int i = 0; i < config.layers; ++i) {
    const std::string at = fmt::format("blocks.{}.", i);
    Layer layer{};
    layer.norm1_weight = add(at + "norm_1.weight", {width}, one, false);
    layer.norm1_bias = optional(norm_bias, at + "norm_1.bias", width, zero);
    layer.qkv_weight = add(at + "attn.Wqkv.weight", {qkv_dim(config), width}, starts.qkv, true);
    layer.qkv_bias = optional(config.bias, at + "attn.Wqkv.bias", qkv_dim(config), starts.wide_bias);
    layer.out_weight = add(at + "attn.out_proj.weight", {width, width}, starts.out, true);
    layer.out_bias = optional(config.bias, at + "attn.out_proj.bias", width, zero);
    layer.norm2_weight = add(at + "norm_2.weight", {width}, one, false);
    layer.norm2_bias = optional(norm_bias, at + "norm_2.bias", width, zero);
    layer.up_weight = add(at + "ffn.up_proj.weight", {up_dim(config), width}, starts.up, true);
    layer.up_bias = optional(config.bias, at + "ffn.up_proj.bias", up_dim(config), starts.wide_bias);
    layer.down_weight = add(at + "ffn.down_proj.weight", {width, hidden}, starts.down, true);
    layer.down_bias = optional(config.bias, at + "ffn.down_proj.bias", width, starts.down_bias);
    layers.push_back(layer);
  }
  if (config.final_norm) {
    final_norm_weight = add("norm_f.weight", {width}, one, false);
    final_norm_bias = optional(norm_bias, "norm_f.bias", width, zero);
  }
}

int TransformerLayout::add(const std::string& name, const Shape& shape, Start start, bool decays) {
  specs.push_back({name, shape, start, decays});
  return static_cast<int>(specs.size()) - 1;
}

}  // namespace alibi
