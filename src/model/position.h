// Position methods: one class for each, with all computations on positions. No other code depends on the method, except
// the readers and writers of other programs' files.
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
  /// Keeps a reference to the configuration.
  explicit PositionMethod(const TransformerConfig& config) : config_(config) {}
  virtual ~PositionMethod() = default;
  PositionMethod(const PositionMethod&) = delete;
  PositionMethod& operator=(const PositionMethod&) = delete;

  // Checks the configuration beyond the ranges of its fields.
  virtual void check(const ConfigFields&) const {}
  /// Number of positions; absent if unlimited.
  virtual std::optional<int64_t> end() const { return {}; }
  /// Sets the fields that depend on the training length.
  virtual void fit(TransformerConfig&, int64_t /*train_length*/) const {}
  /// Whether token embeddings are multiplied by sqrt(d_model), so that added positions do not dominate them.
  virtual bool scales_embeddings() const { return false; }

  /// Whether the weight of keys falls with the distance without limit, so that the weight of far keys has a bound.
  virtual bool bounds_far_keys() const { return false; }

  // The computations in a model.
  virtual void declare(const VisitParameter&) {}
  /// Before the first layer: y = x plus the positions from `first` on; [B, T, C] float32.
  virtual void enter(const Tensor& x, int64_t first, Tensor& y) const;
  virtual void enter_backward(const Tensor& /*dy*/, int64_t /*first*/) const {}
  /// Rotates the queries [B, T, H, D] and keys [B, T, K, D] of every layer. `scale` multiplies the positions; it is 1
  /// in training.
  virtual void rotate(Tensor& /*q*/, Tensor& /*k*/, int64_t /*first*/, double /*scale*/) const {}
  virtual void rotate_backward(Tensor& /*dq*/, Tensor& /*dk*/, int64_t /*first*/) const {}
  /// Biases of attention: one for all layers, or one per layer. All visible keys have a distance below `distances`.
  virtual std::vector<AttentionOptions> biases(int64_t /*distances*/) const { return {AttentionOptions()}; }
  /// Calls `attention_backward` with tensors for the gradients of a layer's bias, and adds them to the parameters'
  /// gradients. `bias` is the result of biases() for the layer.
  virtual void bias_backward(int /*layer*/, const AttentionOptions& /*bias*/,
                             const TakeBiasGradients& attention_backward) const {
    attention_backward({});
  }

 protected:
  const TransformerConfig& config_;
};

std::unique_ptr<PositionMethod> make_position(const TransformerConfig& config);

/// See Transformer::slopes().
std::vector<std::vector<float>> slopes_of(const PositionMethod& position, const TransformerConfig& config);

/// Number of positions of such a model; absent if any length is possible.
inline std::optional<int64_t> end_of_positions(const TransformerConfig& config) { return make_position(config)->end(); }

}  // namespace alibi::model
