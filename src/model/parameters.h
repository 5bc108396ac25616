// Parameters: their declarations, and operations on all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "core/random.h"

namespace alibi::model {

/// Initial values: independent random numbers, one value, or one row of values that is repeated.
struct Initializer {
  enum class Kind : uint8_t { constant, normal, uniform, rows };
  Kind kind;
  float value;       ///< the constant, the standard deviation, or the bound of a uniform distribution
  float center = 0;  ///< bound of the uniform distribution
  std::vector<float> row = {};

  static Initializer constant(float value) { return {Kind::constant, value}; }
  static Initializer normal(float deviation) { return {Kind::normal, deviation}; }
  static Initializer uniform(float bound) { return {Kind::uniform, bound}; }
  static Initializer between(float low, float high) { return {Kind::uniform, (high - low) / 2, (low + high) / 2}; }
  static Initializer rows(std::vector<float> row) { return {Kind::rows, 0, 0, std::move(row)}; }
  /// Glorot & Bengio 2010, equation 16, times a gain.
  static Initializer xavier(int64_t fan_in, int64_t fan_out, float gain = 1);
  /// PyTorch's initial values of the weight and the bias of a linear layer: uniform within 1 / sqrt(fan_in).
  static Initializer linear(int64_t fan_in);

  /// Fills a contiguous float32 tensor. Element i is a function of `random` and i.
  void fill(Tensor& values, const core::Random& random) const;
};

/// The declaration of a parameter, by the layer that owns it.
struct ParameterSpec {
  std::string name;
  Shape shape;
  Initializer start;
  bool decays = false;
  bool is_operand = false;
  bool is_matrix = false;  ///< of a linear layer, embedding or head: it may have any type of weights (nn/weights.h)
  std::vector<std::string> parts = {};  ///< names of its equal parts by rows, if files store the parts separately
  std::optional<uint64_t> stream =
      {};  ///< stream of random numbers; if absent, its index among the parameters without a stream
  struct LastRows {
    int64_t rows;
    Initializer start;
    uint64_t stream;
  };
  std::optional<LastRows> last_rows = {};  ///< last rows that have another initial value
  double rate_factor = 1;                  ///< factor of the learning rate

  int64_t elements() const;
};

/// Layers call it for each of their parameters, in order. `place` receives the pointer to the parameter.
using VisitParameter = std::function<void(Parameter*& place, ParameterSpec spec)>;
using DeclareParameters = std::function<void(const VisitParameter& visit)>;

/// Makes the declared parameters. The places point into the result, also after a move. Without a seed no values are
/// allocated: a loader sets them.
std::vector<Parameter> make_parameters(const DeclareParameters& declare, std::optional<uint64_t> seed);

/// Declarations in the order of LanguageModel::parameters(), without allocating the parameters.
std::vector<ParameterSpec> parameter_specs(const LanguageModelConfig& config);
std::vector<ParameterSpec> parameter_specs(const TransformerConfig& config);
/// The parameters of the position method.
std::vector<ParameterSpec> position_specs(const TransformerConfig& config);
int64_t elements_of(const std::vector<ParameterSpec>& specs);

std::vector<Parameter*> pointers_to(std::vector<Parameter>& parameters);

/// Copies values that are not float32, or that lie in mapped files, to float32 memory of their own.
void to_float32(const std::vector<Parameter*>& parameters);

/// Sets gradients to zero and allocates missing ones, after to_float32().
void zero_gradients(const std::vector<Parameter*>& parameters);
/// Updates the bfloat16 copies of operands in bf16, and frees them in f32.
void round_operands(const std::vector<Parameter*>& parameters, Precision precision);

}  // namespace alibi::model
