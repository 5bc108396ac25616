// A block of the transformer: its parameters, its memory, its forward and its backward pass.
#pragma once

#include <string>

#include "alibi/attention.h"
#include "alibi/sequence_parallel.h"
#include "alibi/transformer.h"
#include "model/layers.h"
#include "model/position.h"
#include "model/residual_stream.h"
#include "nn/scalable_softmax.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi::model {

struct Pass;
struct PassMode;
struct Session;

/// The products of the branches. The backward pass finds them in memory or recomputes them.
struct BlockProducts {
  /// The output of a norm of queries or keys, and the statistics of each row, or of each head of it.
  struct Normed {
    Tensor y;  // [R, H * D] or [R, K * D], rotated if positions are rotary
    nn::NormStatistics statistics;
  };

  Tensor qkv;       // [R, (H + 2K) * D], clamped; rotated if positions are rotary and no norm follows
  Normed q, k;      // with QK norm
  Tensor gate;      // [R, C] with an output gate: its input, before the sigmoid
  Tensor attended;  // [R, C]; in inference it reuses the memory of `normed`
  AttentionState attention;
  SequenceAttentionState divided;  // instead of `attention`, if ranks divide the sequences
  Tensor up;                       // [R, F], gated: [R, 2F]; in inference for some rows at a time

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
};

struct BlockMemory {
  ResidualNorm attention, feed_forward;
  BlockProducts products;

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
};

/// Temporary memory that all blocks use one after the other. Of two tensors on one line, only one is in use at a time.
struct BlockScratch {
  BlockProducts recomputed;
  Tensor normed;     // [R, C]
  Tensor workspace;  // memory of the tensors below
  Tensor activated;  // [R, F] forward: output of the activation; in inference for some rows at a time
  Tensor dhidden;    // [R, F] backward: gradient of `activated`; or
  Tensor dqkv;       // [R, (H + 2K) * D]: gradient of qkv; or
  Tensor gated;      // [R, C]: attended after the output gate, or the gradient of the gate's input
  Tensor dattended;  // [R, C]: gradient of attended; or
  Tensor dnormed;    // [R, C]: gradient of the norm's output

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
  /// Call this after each() has allocated the memory.
  void cut(const TransformerConfig& config, const PassMode& mode, int64_t rows);
};

class Block {
 public:
  /// Keeps references to both arguments.
  Block(const TransformerConfig& config, const Positions& positions, int layer)
      : config_(config), positions_(positions), layer_(layer), has_positions_(config.attention.has_positions(layer)) {}

  void declare(const VisitParameter& visit);

  void forward(ResidualStream& stream, Pass& pass) const;
  void backward(ResidualGradient& stream, Pass& pass) const;

  // The parts of forward(), for a caller that computes attention itself (long_text.h).
  /// scratch.normed = the norm of the stream.
  void normalize(ResidualStream& stream, Pass& pass) const;
  /// The inputs of attention from scratch.normed: qkv [R, (H + 2K) * D], or the keys only, [R, K * D]. They are
  /// not rotated.
  void project(Pass& pass, Tensor& qkv) const;
  void project_keys(Pass& pass, Tensor& keys) const;
  /// The input of the output gate from scratch.normed, for finish().
  void project_gate(Pass& pass) const;
  /// The options of attention, with the bias of this layer that does not depend on the tokens.
  AttentionOptions attention_options(Pass& pass) const { return attention_options(pass, 0, {}); }
  /// For each head a bound of the norms of its queries, from their norm or their clamp; +infinity if there is neither.
  std::vector<double> query_norms() const;
  /// What follows on attention. Overwrites scratch.normed.
  void finish(ResidualStream& stream, const Tensor& attended, Pass& pass) const;

 private:
  /// Queries, keys and values of [R, (H + 2K) * D] as [B, T, heads, D] views.
  struct Heads {
    Tensor q, k, v;
  };
  Heads split(const Tensor& qkv, const Pass& pass) const;
  /// The inputs of attention: the parts of qkv, or the normalized queries and keys.
  Heads split(const BlockProducts& products, const Pass& pass) const;
  /// Applies the clamp and the norms to the product of the input.
  void limit_and_normalize(BlockProducts& products) const;
  /// Queries or keys [R, columns] as the rows that the norm normalizes: themselves, or the heads.
  Tensor rows_of_norm(const Tensor& x) const;
  void normalize_heads(Tensor& x, const NormLayer& layer, nn::NormStatistics& statistics) const;
  /// Converts dqkv from the gradient of the inputs of attention to the gradient of the product. Overwrites `memory` [R,
  /// C] and the normalized queries and keys.
  void limit_and_normalize_backward(BlockProducts& products, Tensor& dqkv, const Tensor& memory) const;
  /// The options of attention for the session of this index, with its normalized input x [B, T, C].
  AttentionOptions attention_options(Pass& pass, size_t index, const Tensor& x) const;
  /// The part that recomputation repeats: normed -> products.attended, and the first half of the feed-forward layer.
  void attend(Pass& pass) const;
  /// scratch.normed += its short convolution (Canon-A), and its backward pass: scratch.dnormed becomes the gradient of
  /// the norm's output, which scratch.normed must hold.
  void mix(Pass& pass) const;
  void mix_backward(Pass& pass) const;
  /// attend() for the session of this index, with its normalized input x [B, T, C].
  void attend_session(const Tensor& x, const Heads& heads, Tensor attended, Pass& pass, size_t index) const;
  nn::ScoreScale score_scale(const Session& session) const;
  void feed_forward(Tensor& y, Pass& pass) const;
  /// Both functions write the gradient of the norm's output to scratch.dnormed.
  void feed_forward_backward(const Tensor& dbranch, Pass& pass) const;
  void attention_backward(const Tensor& dbranch, Pass& pass) const;

  const TransformerConfig& config_;
  const Positions& positions_;
  int layer_;
  bool has_positions_;
  Parameter* sinks_ = nullptr;  ///< [heads]; null without sinks
  Parameter* ssmax_ = nullptr;  ///< [heads]; null without Scalable-Softmax
  Parameter* canon_ = nullptr;  ///< [canon_kernel, C]: row j multiplies the input of j tokens before; null without it
  NormLayer norm1_, q_norm_, k_norm_, attention_norm_, norm2_;
  LinearLayer qkv_, gate_, out_, up_, down_;  ///< gate_ has no weight without an output gate
};

}  // namespace alibi::model
