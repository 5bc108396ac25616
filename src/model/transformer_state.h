// What a Transformer holds: its parameters, and what training keeps between the passes.
#pragma once

#include <vector>

#include "alibi/attention.h"
#include "alibi/transformer.h"
#include "core/random.h"
#include "model/position_embedding.h"
#include "model/training_buffers.h"
#include "model/transformer_layout.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi {

struct [[gnu::visibility("hidden")]] Transformer::State : TransformerLayout {
  enum class Draw : uint64_t { attention_weights, attention_output, feed_forward, activation, embedding };

  TransformerConfig config;
  std::vector<Parameter> parameters;
  SinusoidalTable sinusoids;
  AttentionOptions attention;  // what does not change from call to call
  TrainingMode mode;
  TrainingBuffers buffers;

  State(const TransformerConfig& config_in, uint64_t seed);

  const Tensor& value(int index) const { return parameters[static_cast<size_t>(index)].value; }
  const Tensor* optional_value(int index) const { return index < 0 ? nullptr : &value(index); }
  Tensor* gradient(int index) { return index < 0 ? nullptr : &parameters[static_cast<size_t>(index)].gradient; }

  DType activation_type() const { return mode.precision == Precision::bf16 ? DType::bfloat16 : DType::float32; }
  const Tensor& operand(int index) const { return parameters[static_cast<size_t>(index)].operand(); }
  nn::NormParameters norm(int weight, int bias) const {
    return {value(weight), optional_value(bias), config.norm_eps, config.norm == Norm::layer_norm};
  }
  nn::NormStatistics statistics(int64_t rows) const;

  AttentionOptions attention_options(const StepSeed* step, size_t layer) const;
  /// Queries, keys, values of a [R, (H + 2K) * D] tensor as [B, T, heads, D] views.
  struct Heads {
    Tensor q, k, v;
  };
  Heads split(const Tensor& qkv, int64_t batch, int64_t length) const;
  /// y = x with the positions that enter below the first layer; float32.
  void enter(const Tensor& x, Tensor& y) const;
  /// Rotates queries and keys where positions are rotary.
  void rotate(Heads & heads) const;
  void rotate_backward(Heads & dheads) const;
  Random draws(const StepSeed& seed, size_t layer, Draw what) const {
    return Random(seed.seed, mix(seed.step, seed.part, layer, static_cast<uint64_t>(what)));
  }
  nn::BranchDropout dropout(const StepSeed& seed, size_t layer, Draw what) const {
    return {config.dropout, draws(seed, layer, what)};
  }

  // Training: the parts of a layer that the backward pass may do again, and where they are.
  TrainingBuffers::Kept& kept_of(size_t layer) {
    return mode.recompute ? buffers.recomputed : buffers.layers[layer].kept;
  }
  void attend(size_t layer, const Tensor& normed, TrainingBuffers::Kept& kept);
  void expand(size_t layer, const Tensor& normed, TrainingBuffers::Kept& kept);
  /// Both leave the gradient of the norm's output in buffers.dnormed.
  void feed_forward_backward(size_t layer);
  void attention_branch_backward(size_t layer);
  /// In float32 without dropout the gradient of a branch is that of the stream.
  bool branch_gradient_is_apart() const { return mode.precision == Precision::bf16 || config.dropout > 0; }
  const Tensor& branch_gradient() const { return branch_gradient_is_apart() ? buffers.branch : buffers.stream; }
};

}  // namespace alibi
