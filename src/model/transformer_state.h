// The content of a Transformer: its layers, its parameters, and the pass that training keeps.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/transformer.h"
#include "core/access.h"
#include "model/block.h"
#include "model/layers.h"
#include "model/pass.h"
#include "model/position.h"

// Dimension letters: B batch, T length, C d_model.

namespace alibi::model {

/// The layers. Their parameters need not be allocated.
struct TransformerLayers {
  const TransformerConfig config;
  Positions positions;
  std::vector<Block> blocks;
  NormLayer embedding_norm, final_norm;

  explicit TransformerLayers(const TransformerConfig& config_in);
  TransformerLayers(const TransformerLayers&) = delete;  // blocks refer to the other layers
  TransformerLayers& operator=(const TransformerLayers&) = delete;

  void declare(const VisitParameter& visit);
};

/// Sets a function that training calls as soon as the gradients of a layer's own parameters are complete in a backward
/// pass, from the last layer to the first.
void on_layer_gradients(LanguageModel& model, std::function<void(int layer)> call);

/// From now on, training gets this rank's shards of sequences of `length` tokens, which `ranks` divide; null: whole
/// sequences. `ranks` must outlive the training.
void divide_sequences(LanguageModel& model, const SequenceRanks* ranks, int64_t length);

/// The options of attention for reading this number of further tokens of a text.
std::vector<AttentionOptions> biases_of(const PositionBias& bias, const TransformerConfig& config,
                                        const Session& session, int64_t tokens);

}  // namespace alibi::model

namespace alibi {

struct [[gnu::visibility("hidden")]] Transformer::State : model::TransformerLayers {
  std::vector<Parameter> parameters;
  Precision precision = Precision::f32;
  bool recompute = false;
  bool quantizes_activations = false;  ///< LanguageModel::set_quantized_activations()
  model::Pass training;
  std::function<void(int layer)> on_layer_gradients;
  model::SequenceDivision division;  ///< of the training pass

  /// Without a seed the parameters are not initialized.
  State(const TransformerConfig& config_in, std::optional<uint64_t> seed);

  /// The forward function of all passes: x [B, T, C] -> y of the same shape, in the activations' data type in training
  /// and float32 otherwise. `pass` contains the differences between modes; `keep` tells what its memory must contain
  /// afterwards.
  Tensor forward(const Tensor& x, model::Keep keep, model::Pass& pass) const;
  /// The backward pass after a forward() that kept its products. dy -> dx, which is in the memory of the pass.
  Tensor backward(const Tensor& dy, model::Pass& pass) const;
};

}  // namespace alibi
