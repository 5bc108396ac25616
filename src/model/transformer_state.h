// What a Transformer holds: its layers, its parameters, and the pass that training keeps.
#pragma once

#include <memory>
#include <vector>

#include "alibi/transformer.h"
#include "core/access.h"
#include "model/block.h"
#include "model/layers.h"
#include "model/pass.h"
#include "model/position.h"

// Dimension letters: B batch, T length, C d_model.

namespace alibi::model {

/// The layers, whose parameters may or may not have been made.
struct TransformerLayers {
  const TransformerConfig config;
  std::unique_ptr<PositionMethod> position;
  std::vector<Block> blocks;
  NormLayer embedding_norm, final_norm;

  explicit TransformerLayers(const TransformerConfig& config_in);
  TransformerLayers(const TransformerLayers&) = delete;  // blocks refer to the others
  TransformerLayers& operator=(const TransformerLayers&) = delete;

  void declare(const VisitParameter& visit);
};

}  // namespace alibi::model

namespace alibi {

struct [[gnu::visibility("hidden")]] Transformer::State : model::TransformerLayers {
  std::vector<Parameter> parameters;
  Precision precision = Precision::f32;
  bool recompute = false;
  model::Pass training;

  /// Without a seed the parameters hold nothing yet.
  State(const TransformerConfig& config_in, std::optional<uint64_t> seed);

  /// The one walk through the layers: x [B, T, C] -> y of that shape, of the activations' type in training, else
  /// float32. The pass says what differs; `keep` what its memory must hold afterwards.
  Tensor forward(const Tensor& x, model::Keep keep, model::Pass& pass) const;
  /// Down again, after a walk that kept something. dy -> dx, which lies in the memory of the pass.
  Tensor backward(const Tensor& dy, model::Pass& pass) const;
};

}  // namespace alibi
