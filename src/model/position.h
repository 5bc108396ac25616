// Position methods: what is added to the input, how queries and keys are rotated, and the bias of attention are three
// independent choices of a model. src/model/positions has a file for each method.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "alibi/attention.h"
#include "alibi/language_model.h"
#include "alibi/transformer.h"
#include "formats/json.h"
#include "model/check_config.h"
#include "model/config_fields.h"
#include "model/parameters.h"
#include "report/theme.h"

// Dimension letters: B batch, T length, C d_model, H heads, K key/value heads, D head_dim.

namespace alibi::model {

/// How the positions of a pass are scaled (Interpolation). The defaults change nothing, as in training.
struct PositionScale {
  float scale = 1;  ///< factor of ALiBi's distances or rotary's positions
  RotaryScaling rotary = RotaryScaling::linear;
  int64_t trained = 0;  ///< yarn: the length that the model was trained at

  float of_distances() const { return rotary == RotaryScaling::linear ? scale : 1; }
};

/// What all methods have. Each of the three classes below is also the choice "none", which changes nothing.
class PositionPart {
 public:
  /// Keeps a reference to the configuration.
  explicit PositionPart(const TransformerConfig& config) : config_(config) {}
  virtual ~PositionPart() = default;
  PositionPart(const PositionPart&) = delete;
  PositionPart& operator=(const PositionPart&) = delete;

  /// Checks the configuration beyond the ranges of its fields.
  virtual void check(const ConfigFields&) const {}
  /// Sets the fields that depend on the training length.
  virtual void fit(TransformerConfig&, int64_t /*train_length*/) const {}
  /// Sets the fields whose default depends on the training length, for a new model (ModelRecipe).
  virtual void set_defaults(TransformerConfig&, int64_t /*train_length*/) const {}
  /// Whether positions can be scaled (Interpolation).
  virtual bool interpolates() const { return false; }
  /// Positions::declare() sets the stream of random numbers.
  virtual void declare(const VisitParameter&) {}

 protected:
  const TransformerConfig& config_;
};

/// Adds positions to the input of the first layer.
class InputPositions : public PositionPart {
 public:
  using PositionPart::PositionPart;

  /// Number of positions; absent if unlimited.
  virtual std::optional<int64_t> end() const { return {}; }
  /// Whether token embeddings are multiplied by sqrt(d_model), so that added positions do not dominate them.
  virtual bool scales_embeddings() const { return false; }
  /// y = x plus the positions from `first` on; [B, T, C] float32. y may be x.
  virtual void enter(const Tensor& x, int64_t first, Tensor& y) const;
  virtual void enter_backward(const Tensor& /*dy*/, int64_t /*first*/) const {}
};

/// Rotates the queries [B, T, H, D] and keys [B, T, K, D] of every layer. A rotation changes no norm, so the bounds of
/// the skip rule hold with it.
class Rotation : public PositionPart {
 public:
  using PositionPart::PositionPart;

  virtual void rotate(Tensor& /*x*/, int64_t /*first*/, const PositionScale&) const {}
  virtual void rotate_backward(Tensor& /*dx*/, int64_t /*first*/) const {}
};

/// Tensors that attention's backward pass adds its sums to; undefined: not needed.
struct BiasSums {
  Tensor dtable = {}, dslopes = {}, dlog_decay = {};
};

/// The bias of the attention scores.
class PositionBias : public PositionPart {
 public:
  using PositionPart::PositionPart;

  /// Whether the weight of keys falls with the distance without limit, so that the weight of far keys has a bound that
  /// follows from biases() alone.
  virtual bool bounds_far_keys() const { return false; }
  /// Whether a context may evict keys: their weight has a bound, at least once later tokens have been read.
  virtual bool bounds_evicted_keys() const { return bounds_far_keys(); }
  /// Called once for a pass: the biases for all layers, or one for each. All visible keys have a distance below
  /// `distances`. `scale` multiplies the distances; it is 1 in training.
  virtual std::vector<AttentionOptions> biases(int64_t /*distances*/, float /*scale*/) const {
    return {AttentionOptions()};
  }
  /// Called for every layer with its bias of biases() and its normalized input x [B, T, C], for a bias that depends on
  /// the tokens.
  virtual void add_input(int /*layer*/, const Tensor& /*x*/, AttentionOptions& /*bias*/) const {}
  /// What the gradient of a layer's bias, as attention had it, needs of attention's backward pass.
  virtual BiasSums sums(int /*layer*/, const AttentionOptions& /*bias*/) const { return {}; }
  /// Adds to the gradients of the parameters, and to dx [B * T, C], the gradient of the layer's normalized input x.
  virtual void backward(int /*layer*/, const BiasSums&, const Tensor& /*x*/, Tensor& /*dx*/) const {}
};

/// A method as its file describes it.
struct PositionMethod {
  template <class Part>
  using Make = std::unique_ptr<Part> (*)(const TransformerConfig&);

  const char* name;
  const char* formula;  ///< of query i and key j, or of the row at position i
  const char* paper;
  const char* cost;  ///< parameters, and whether far keys are skipped
  std::variant<Make<InputPositions>, Make<Rotation>, Make<PositionBias>> make;  ///< its alternative is the choice
  report::MethodStyle style;
  std::vector<ConfigField> fields = {};
};

/// PositionMethod::make for a class.
template <class Part, class Method>
std::unique_ptr<Part> make_part(const TransformerConfig& config) {
  return std::make_unique<Method>(config);
}

/// The methods in the order of their names. The build makes this list from the files of src/model/positions.
const std::vector<PositionMethod>& position_methods();

/// The choices of a model.
struct Positions {
  std::unique_ptr<InputPositions> input;  ///< never null
  std::unique_ptr<Rotation> rotation;     ///< never null
  std::unique_ptr<PositionBias> bias;     ///< never null

  /// Keeps a reference to the configuration.
  explicit Positions(const TransformerConfig& config);

  void check(const ConfigFields& fields) const;
  void fit(TransformerConfig& config, int64_t train_length) const;
  void set_defaults(TransformerConfig& config, int64_t train_length) const;
  void declare(const VisitParameter& visit) const;
};

/// Whether all parts of these positions, at least one, can be scaled.
bool can_interpolate(const TransformerConfig& config, RotaryScaling rotary);
/// Such as 4, "dynamic" or "yarn:4".
formats::OrderedJson interpolation_json(const Interpolation& interpolation);
constexpr std::array<const char*, 3> kRotaryScalings{"linear", "ntk", "yarn"};

/// See Transformer::slopes().
std::vector<std::vector<float>> slopes_of(const PositionBias& bias, const TransformerConfig& config);

/// Number of positions of such a model; absent if any length is possible.
inline std::optional<int64_t> end_of_positions(const TransformerConfig& config) {
  return Positions(config).input->end();
}

}  // namespace alibi::model
