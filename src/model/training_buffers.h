// The memory of a training step: what the forward pass keeps for the backward pass, and what both work in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alibi/attention.h"
#include "alibi/transformer.h"
#include "core/memory.h"
#include "nn/activation.h"
#include "nn/norm.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi {

/// How a transformer is trained; the config says what it is.
struct TrainingMode {
  Precision precision = Precision::f32;
  bool recompute = false;
};

/// Queries, keys and values of a row side by side.
inline int64_t qkv_dim(const TransformerConfig& config) {
  return int64_t{config.heads + 2 * config.key_heads()} * config.head_dim();
}
/// Output of the first feed-forward layer: gate and value side by side where the activation has a gate.
inline int64_t up_dim(const TransformerConfig& config) {
  return int64_t{config.ffn_dim()} * (nn::is_gated(config.activation) ? 2 : 1);
}

/// All of it is made before the first step and stays. The type of the activations is that of the precision; the
/// residual stream and its gradient are float32 in any case.
struct TrainingBuffers {
  /// What a layer's backward pass computes anew instead of keeping it, if it must save memory: one set serves all.
  struct Kept {
    Tensor qkv;       // [R, (H + 2K) * D], rotated where positions are rotary
    Tensor attended;  // [R, C]
    AttentionState attention;
    Tensor up;  // [R, F], gated: [R, 2F]
  };

  struct Layer {
    Tensor x;  // [R, C] input
    nn::NormStatistics statistics1;
    Tensor middle;  // [R, C] after the attention's residual
    nn::NormStatistics statistics2;
    Kept kept;  // undefined with recompute
  };

  int64_t batch = 0, length = 0;
  std::unique_ptr<const KeepMemory> keep;  // what operators need for a while: steps do not ask the system for it anew
  StepSeed seed;
  std::vector<Layer> layers;
  Kept recomputed;
  Tensor last;  // [R, C] input of the final norm
  nn::NormStatistics final_statistics;

  // What both passes work in. Of the two in a line, only one is alive at a time.
  Tensor stream;     // [R, C] float32: the residual stream (where activations are bfloat16); its gradient
  Tensor branch;     // [R, C] what returns to the stream; its gradient
  Tensor normed;     // [R, C]
  Tensor workspace;  // [R, max(F, (H + 2K) * D) + C], cut into the following
  Tensor activated;  // [R, F] forward: output of the activation
  Tensor dhidden;    // [R, F] backward: gradient of that; or
  Tensor dqkv;       // [R, (H + 2K) * D] gradient of qkv
  Tensor dattended;  // [R, C] gradient of attended; or
  Tensor dnormed;    // [R, C] of the norm's output

  /// Calls visit(kind, tensor, shape, dtype) for every tensor that owns memory; kind is for people.
  template <class Visit>
  void each(const TransformerConfig& config, const TrainingMode& mode, int64_t rows, const Visit& visit);

  /// Makes all tensors for batches of this shape, if they are not there yet.
  void prepare(const TransformerConfig& config, const TrainingMode& mode, int64_t batch, int64_t length);
  /// What prepare() allocates, without allocating: bytes kept from the forward to the backward pass, and others.
  struct Bytes {
    int64_t kept = 0, scratch = 0;
  };
  static Bytes predict(const TransformerConfig& config, const TrainingMode& mode, int64_t batch, int64_t length);
};

}  // namespace alibi
