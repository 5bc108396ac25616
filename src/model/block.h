// A block of the transformer: its parameters, its memory, its forward and its backward pass.
#pragma once

#include <string>

#include "alibi/attention.h"
#include "alibi/transformer.h"
#include "model/layers.h"
#include "model/position.h"
#include "model/residual_stream.h"

// Dimension letters: B batch, T length, R = B * T rows, C d_model, H heads, K key/value heads, D head_dim, F ffn_dim.

namespace alibi::model {

struct Pass;
struct PassMode;

/// What the branches compute, which a backward pass either finds or computes again.
struct BlockProducts {
  /// What a norm of queries or keys gives, and keeps of each row.
  struct Normed {
    Tensor y;  // [R, H * D] or [R, K * D], rotated where positions are rotary
    nn::NormStatistics statistics;
  };

  Tensor qkv;       // [R, (H + 2K) * D], limited; rotated where positions are rotary and no norm follows
  Normed q, k;      // with QK norm
  Tensor attended;  // [R, C]; inference: it takes the place of `normed`
  AttentionState attention;
  Tensor up;  // [R, F], gated: [R, 2F]; inference: of some rows at a time

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
};

struct BlockMemory {
  ResidualNorm attention, feed_forward;
  BlockProducts products;

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
};

/// What all blocks work in, one after the other. Of two in a line, only one is alive at a time.
struct BlockScratch {
  BlockProducts recomputed;
  Tensor normed;     // [R, C]
  Tensor workspace;  // cut into the following
  Tensor activated;  // [R, F] forward: output of the activation; inference: of some rows at a time
  Tensor dhidden;    // [R, F] backward: gradient of that; or
  Tensor dqkv;       // [R, (H + 2K) * D] gradient of qkv
  Tensor dattended;  // [R, C] gradient of attended; or
  Tensor dnormed;    // [R, C] of the norm's output

  void each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit);
  /// To be called once each() has made them.
  void cut(const TransformerConfig& config, const PassMode& mode, int64_t rows);
};

class Block {
 public:
  /// Keeps references to both.
  Block(const TransformerConfig& config, const PositionMethod& position, int layer)
      : config_(config), position_(position), layer_(layer) {}

  void declare(const VisitParameter& visit);

  void forward(ResidualStream& stream, Pass& pass) const;
  void backward(ResidualGradient& stream, Pass& pass) const;

 private:
  /// Queries, keys and values of [R, (H + 2K) * D] as [B, T, heads, D] views.
  struct Heads {
    Tensor q, k, v;
  };
  Heads split(const Tensor& qkv, const Pass& pass) const;
  /// What attention reads: the parts of qkv, or the normed queries and keys.
  Heads split(const BlockProducts& products, const Pass& pass) const;
  /// Applies the limit and the norms to the product of the input.
  void limit_and_normalize(BlockProducts& products) const;
  /// dqkv: from the gradient of what attention reads to that of the product. `memory` [R, C] is overwritten, and so are
  /// the normed queries and keys.
  void limit_and_normalize_backward(BlockProducts& products, Tensor& dqkv, const Tensor& memory) const;
  /// What the pass of a text says of this layer's bias.
  const AttentionOptions& bias_of(const Pass& text) const;
  AttentionOptions attention_options(const Pass& pass, const Pass& text) const;
  /// What recomputing does again: normed -> products.attended, and the first half of the feed-forward layer.
  void attend(const Tensor& normed, Pass& pass) const;
  /// The part of it for rows at one place in their texts; `text` says where.
  void attend_text(Heads heads, Tensor attended, Pass& pass, Pass& text) const;
  void feed_forward(const Tensor& normed, Tensor& y, Pass& pass) const;
  /// Both leave the gradient of the norm's output in scratch.dnormed.
  void feed_forward_backward(const Tensor& dbranch, Pass& pass) const;
  void attention_backward(const Tensor& dbranch, Pass& pass) const;

  const TransformerConfig& config_;
  const PositionMethod& position_;
  int layer_;
  NormLayer norm1_, q_norm_, k_norm_, norm2_;
  LinearLayer qkv_, out_, up_, down_;
};

}  // namespace alibi::model
