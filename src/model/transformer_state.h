// What a Transformer holds: its parameters, and what training keeps between the passes.
#pragma once

#include <string>
#include <vector>

#include "alibi/attention.h"
#include "alibi/transformer.h"
#include "core/random.h"
#include "model/initialization.h"
#include "model/position_embedding.h"
#include "nn/activation.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi {

/// Reuses a tensor's memory from step to step where the shape stays.
inline Tensor& reuse(Tensor& tensor, const Shape& shape) {
  if (!tensor.defined() || tensor.shape() != shape) {
    tensor = Tensor();  // free before allocating: the peak holds one of them
    tensor = Tensor::empty(shape);
  }
  return tensor;
}

struct Transformer::State {
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

  enum class Draw : uint64_t { attention_weights, attention_output, feed_forward, activation, embedding };

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

  int add(const std::string& name, const Shape& shape, Start start, bool decays, uint64_t seed);
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

}  // namespace alibi
