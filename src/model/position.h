// Position methods: a class for each, which holds all that a model does about where its tokens stand. Nothing else asks
// which method a model has, but what reads and writes the files of other programs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "alibi/attention.h"
#include "alibi/transformer.h"
#include "model/check_config.h"
#include "model/parameters.h"

// Dimension letters: B batch, T length, C d_model, H heads, K key/value heads, D head_dim.

namespace alibi::model {

using TakeBiasGradients = std::function<void(const AttentionBiasGradients&)>;

class PositionMethod {
 public:
  /// Keeps a reference.
  explicit PositionMethod(const TransformerConfig& config) : config_(config) {}
  virtual ~PositionMethod() = default;
  PositionMethod(const PositionMethod&) = delete;
  PositionMethod& operator=(const PositionMethod&) = delete;

  // What a configuration says of it.
  /// What the ranges of its fields leave open.
  virtual void check(const ConfigFields&) const {}
  /// Positions that it has; absent: it does not end.
  virtual std::optional<int64_t> end() const { return {}; }
  /// Gives a configuration what the method needs to be trained at this length.
  virtual void fit(TransformerConfig&, int64_t /*train_length*/) const {}
  /// Token embeddings are multiplied by sqrt(d_model), so that what is added does not drown them.
  virtual bool scales_embeddings() const { return false; }

  /// Keys weigh less the farther they are, without end: what far ones could weigh is bounded.
  virtual bool bounds_far_keys() const { return false; }

  // What it does in a model.
  virtual void declare(const VisitParameter&) {}
  /// Below the first layer: y = x with the positions from `first` on; [B, T, C] float32.
  virtual void enter(const Tensor& x, int64_t first, Tensor& y) const;
  virtual void enter_backward(const Tensor& /*dy*/, int64_t /*first*/) const {}
  /// To the queries [B, T, H, D] and keys [B, T, K, D] of every layer.
  virtual void rotate(Tensor& /*q*/, Tensor& /*k*/, int64_t /*first*/) const {}
  virtual void rotate_backward(Tensor& /*dq*/, Tensor& /*dk*/, int64_t /*first*/) const {}
  /// What it tells the attention of a layer.
  virtual void bias(int /*layer*/, AttentionOptions&) const {}
  /// Calls `attention_backward` with places for the gradients of that, and takes them in.
  virtual void bias_backward(int /*layer*/, const TakeBiasGradients& attention_backward) const {
    attention_backward({});
  }

 protected:
  const TransformerConfig& config_;
};

std::unique_ptr<PositionMethod> make_position(const TransformerConfig& config);

/// As Transformer::slopes().
std::vector<std::vector<float>> slopes_of(const PositionMethod& position, const TransformerConfig& config);

/// Positions that such a model has; absent: it runs at any length.
inline std::optional<int64_t> end_of_positions(const TransformerConfig& config) { return make_position(config)->end(); }

}  // namespace alibi::model
