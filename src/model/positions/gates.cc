// Forget gates (Forgetting Transformer, Lin et al. 2025, arXiv 2503.02130): each token t has log f_t = logsigmoid(w x_t
// + b) for each head of each layer, from the input x of its attention, and the score of query i and key j has the sum
// of log f_t over t in (j, i] added to it. The start of b makes f the decay exp(-slope) of ALiBi, and w starts at 0, so
// a new model is one with ALiBi. With gate_slopes = 0, w starts at random and b at 0.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"
#include "model/field_table.h"
#include "model/layers.h"
#include "model/position.h"
#include "nn/elementwise.h"
#include "nn/linear.h"

namespace alibi::model::positions {
namespace {

constexpr PositionNumber kGateTokens{.name = "gate_tokens", .json = "alibi.gate_tokens", .usual = 1};
constexpr PositionNumber kGateSlopes{.name = "gate_slopes", .json = "alibi.gate_slopes", .usual = 1};

class Gates : public PositionBias {
 public:
  using PositionBias::PositionBias;

  void check(const ConfigFields& fields) const override {
    fields.refuse_if(!config_.attention.causal,
                     "gates are for decoders: they say what a token forgets of the tokens before it");
  }

  void declare(const VisitParameter& visit) override {
    const int64_t heads = config_.attention.heads;
    const bool as_alibi = kGateSlopes.of(config_) != 0;
    std::vector<float> start(static_cast<size_t>(heads), 0.0f);
    if (as_alibi) {
      start = slopes(config_.attention.heads, config_.attention.alibi_bias_max);
      for (float& m : start) m = static_cast<float>(-std::log(std::expm1(static_cast<double>(m))));  // of exp(-m)
    }
    layers_.resize(static_cast<size_t>(config_.layers));
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (!config_.attention.has_positions(static_cast<int>(layer))) continue;
      const std::string name = fmt::format("gates.{}", layer);
      visit(layers_[layer].bias, {.name = name + ".bias", .shape = {heads}, .start = Initializer::rows(start)});
      if (kGateTokens.of(config_) == 0) continue;
      visit(layers_[layer].weight, {.name = name + ".weight",
                                    .shape = {heads, config_.d_model},
                                    .start = as_alibi ? Initializer::constant(0) : Initializer::linear(config_.d_model),
                                    .decays = true});
    }
  }

  bool bounds_evicted_keys() const override { return true; }

  void add_input(int layer, const Tensor& x, AttentionOptions& bias) const override {
    Tensor gates = logits(layer, x);
    each(gates, [](float& z) { z = std::min(z, 0.0f) - std::log1p(std::exp(-std::abs(z))); });
    bias.log_decay = gates;
  }

  BiasSums sums(int, const AttentionOptions& bias) const override {
    return {.dlog_decay = Tensor(bias.log_decay->shape())};
  }

  void backward(int layer, const BiasSums& sums, const Tensor& x, Tensor& dx) const override {
    const int64_t heads = config_.attention.heads, rows = x.size(0) * x.size(1);
    Tensor dlogits = sums.dlog_decay.reshape({rows, heads});
    Tensor z = logits(layer, x);
    const float* at = z.data<float>();
    float* const d = dlogits.data<float>();
    core::parallel_ranges(rows * heads, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        d[i] /= 1 + std::exp(at[i]);  // the derivative of logsigmoid(z) is sigmoid(-z)
    });
    const LinearLayer& gate = layers_[static_cast<size_t>(layer)];
    if (gate.weight == nullptr) {
      for (int64_t i = 0; i < rows * heads; ++i) gate.bias->gradient.data<float>()[i % heads] += d[i];
      return;
    }
    const Tensor input = as_float(x).reshape({rows, config_.d_model});
    Tensor dinput = Tensor::empty(input.shape());
    nn::linear_backward(dlogits, input, gate.weight->value, &dinput, &gate.weight->gradient, &gate.bias->gradient);
    nn::add(dx, dinput, dx);
  }

 private:
  static constexpr int64_t grain = 1 << 12;

  template <class Change>
  static void each(Tensor& values, const Change& change) {
    float* const at = values.data<float>();
    core::parallel_ranges(values.elements(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) change(at[i]);
    });
  }
  static Tensor as_float(const Tensor& x) {
    if (x.dtype() == DType::float32) return x;
    Tensor result = Tensor::empty(x.shape(), DType::float32);
    nn::convert(x, result);
    return result;
  }
  /// w x + b, [B, T, H]
  Tensor logits(int layer, const Tensor& x) const {
    const int64_t heads = config_.attention.heads;
    Tensor result = Tensor::empty({x.size(0), x.size(1), heads});
    const LinearLayer& gate = layers_[static_cast<size_t>(layer)];
    const Tensor bias = as_float(gate.bias->value);
    if (gate.weight != nullptr) {
      nn::linear(as_float(x), as_float(gate.weight->value), &bias, result);
    } else {
      for (int64_t i = 0; i < result.elements(); ++i) result.data<float>()[i] = bias.data<float>()[i % heads];
    }
    return result;
  }

  std::vector<LinearLayer> layers_;  // [heads, d_model], without a weight if all tokens have the same gates; [heads]
};

}  // namespace

PositionMethod gates() {
  return {
      .name = "gates",
      .formula = "score + the sum of log f_t over t in (j, i], log f_t = logsigmoid(w[head] x_t + b[head])",
      .paper = "Forgetting Transformer, Lin et al. 2025, arXiv 2503.02130",
      .cost = "d_model + 1 parameters for each head and layer; far keys are skipped",
      .make = make_part<PositionBias, Gates>,
      .style = {"gates", "#7B3FA0", "#6A3290", "#B98AD6", "#C9A2E0", report::Marker::square},
      .fields = {number_field<kGateTokens>(
                     {.least = 0, .most = 1},
                     "Gates: 1: each token chooses its gates; 0: they are the same for all tokens"),
                 number_field<kGateSlopes>({.least = 0, .most = 1},
                                           "Gates: 1: a new model begins as ALiBi; 0: with random gates")},
  };
}

}  // namespace alibi::model::positions
