// ALiBi (Press et al. 2022): score - slope * |query - key|, with a fixed slope for each head. Slopes may be learned.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/field_table.h"
#include "model/position.h"
#include "nn/elementwise.h"

namespace alibi::model::positions {
namespace {

class Alibi : public PositionBias {
 public:
  using PositionBias::PositionBias;

  void check(const ConfigFields& fields) const override {
    const std::vector<float>& given = config_.attention.alibi_slopes;
    const auto count = static_cast<size_t>(slopes_of_layer());
    fields.refuse_if(
        given.size() > 1 && given.size() != count,
        fmt::format("{} are {} numbers, expected {} for {} heads{}, or one for all", fields.name("alibi_slopes"),
                    given.size(), count, config_.attention.heads - config_.attention.nope_heads,
                    has_two_slopes() ? ", two for each" : ""));
    if (!is_learned()) return;
    fields.refuse_if(!is_symmetric(),
                     fmt::format("{} is {}, expected {} for an encoder that is {}: attention has no "
                                 "gradient of the slopes after the query",
                                 fields.name("slope_training"), name_of(config_.attention.slope_training),
                                 name_of(SlopeTraining::fixed), name_of(config_.attention.bidirectional)));
    for (const float slope : given) {
      fields.expect(slope > 0, "alibi_slopes", slope, "numbers above 0, where they are learned");
    }
  }

  /// Only steep slopes hide the angles that the model never saw (docs/explanation/alibi.md).
  void set_defaults(TransformerConfig& config, int64_t /*train_length*/) const override {
    if (!config.position.rotation.empty()) config.attention.alibi_bias_max = 4;
  }
  void declare(const VisitParameter& visit) override {
    if (!is_learned() || config_.layers == 0) return;
    const auto low = static_cast<float>(std::max<double>(min_exponent, -config_.attention.alibi_bias_max));
    std::vector<float> exponents = start();
    for (float& x : exponents) x = std::clamp(std::log2(x), min_exponent, max_exponent);
    const bool random = config_.attention.slope_training == SlopeTraining::learned_random;
    visit(exponents_, {.name = "alibi.log2_slopes",
                       .shape = {config_.layers, config_.attention.heads},
                       .start = random ? Initializer::between(low, 0) : Initializer::rows(std::move(exponents))});
  }

  bool bounds_far_keys() const override { return true; }
  bool interpolates() const override { return true; }

  std::vector<AttentionOptions> biases(int64_t, float scale) const override {
    if (exponents_ == nullptr) return {with_slopes(start(), scale)};
    std::vector<AttentionOptions> layers;
    for (int layer = 0; layer < config_.layers; ++layer) {
      layers.push_back(with_slopes(learned(layer).to_floats(), scale));
    }
    return layers;
  }

  BiasSums sums(int layer, const AttentionOptions&) const override {
    if (exponents_ == nullptr) return {};
    return {.dslopes = Tensor(learned(layer).shape(), DType::float32)};
  }
  void backward(int layer, const BiasSums& sums, const Tensor&, Tensor&) const override {
    if (exponents_ == nullptr) return;
    Tensor dexponents = exponents_->gradient.slice(0, layer, layer + 1);
    nn::exp2_backward(sums.dslopes, exponents_->value.slice(0, layer, layer + 1), min_exponent, max_exponent,
                      dexponents);
  }

 private:
  /// A smaller slope adds less than 0.001 to a score over a million tokens. A larger one gives the nearest key all the
  /// weight.
  static constexpr float min_exponent = -30, max_exponent = 10;

  AttentionOptions with_slopes(std::vector<float> slopes, float scale) const {
    AttentionOptions options;
    if (scale != 1) {
      for (float& slope : slopes) slope *= scale;
    }
    const auto heads = static_cast<size_t>(config_.attention.heads);
    options.alibi_slopes = std::move(slopes);
    if (is_symmetric()) {
      options.alibi_slopes.resize(heads, 0.0f);  // heads without positions
      return options;
    }
    const std::vector<float> given = std::move(options.alibi_slopes);
    options.alibi_slopes.resize(heads);
    options.alibi_slopes_after.resize(heads);
    for (size_t h = 0; h < heads; ++h) {
      constexpr float closed = std::numeric_limits<float>::infinity();
      if (has_two_slopes()) {
        options.alibi_slopes[h] = given[2 * h];
        options.alibi_slopes_after[h] = given[2 * h + 1];
      } else {
        options.alibi_slopes[h] = h % 2 == 0 ? given[h] : closed;
        options.alibi_slopes_after[h] = h % 2 == 0 ? closed : given[h];
      }
    }
    return options;
  }

  bool is_learned() const { return config_.attention.slope_training != SlopeTraining::fixed; }
  bool is_symmetric() const {
    return config_.attention.causal || config_.attention.bidirectional == Bidirectional::symmetric;
  }
  bool has_two_slopes() const {
    return !config_.attention.causal && config_.attention.bidirectional == Bidirectional::two_slopes;
  }
  /// Of the heads with positions.
  int slopes_of_layer() const {
    return has_two_slopes() ? 2 * config_.attention.heads : config_.attention.heads - config_.attention.nope_heads;
  }

  /// Slopes of all layers, or their initial values, of the heads with positions.
  std::vector<float> start() const {
    const auto count = static_cast<size_t>(slopes_of_layer());
    const std::vector<float>& given = config_.attention.alibi_slopes;
    if (given.size() == 1) return std::vector<float>(count, given.front());
    if (!given.empty()) return given;
    if (is_symmetric() || has_two_slopes()) return slopes(slopes_of_layer(), config_.attention.alibi_bias_max);
    const std::vector<float> half =
        slopes((config_.attention.heads + 1) / 2, config_.attention.alibi_bias_max);  // one slope for both directions
    std::vector<float> result(count);
    for (size_t h = 0; h < count; ++h) result[h] = half[h / 2];
    return result;
  }

  Tensor learned(int layer) const {
    const Tensor exponents = exponents_->value.slice(0, layer, layer + 1);
    Tensor result = Tensor::empty(exponents.shape(), DType::float32);
    nn::exp2(exponents, min_exponent, max_exponent, result);
    return result;
  }

  Parameter* exponents_ = nullptr;  // base-2 logarithms of the slopes, [layers, heads]; null if the slopes are fixed
};

}  // namespace

PositionMethod alibi() {
  return {
      .name = "alibi",
      .formula = "score - slope[head] |i - j|",
      .paper = "Press, Smith & Lewis 2022, arXiv 2108.12409",
      .cost = "no parameters; far keys are skipped",
      .make = make_part<PositionBias, Alibi>,
      .style = {"alibi", "#D55E00", "#B34F00", "#FF8A3D", "#FF9D5C", report::Marker::circle, true},
      .fields =
          {
              {{ALIBI_FIELD("alibi_bias_max", transformer.attention.alibi_bias_max), .range = {.above = 0, .most = 1e6},
                .help = "ALiBi: exponent of the smallest slope, which is 2^-X", .default_text = "8; 4 with a rotation",
                .rare = true},
               {.json = "attn_config.alibi_bias_max", .offered = true}},
              {{ALIBI_FIELD("alibi_slopes", transformer.attention.alibi_slopes), .range = {.least = 0},
                .help = "ALiBi: slopes of the heads, separated by commas, or one for all heads; they replace those of "
                        "--alibi-bias-max",
                .rare = true},
               {.json = "alibi.slopes", .offered = true}},
              {{ALIBI_FIELD("slope_training", transformer.attention.slope_training),
                .help = "ALiBi: whether each layer trains its slopes; learned_random starts from random slopes",
                .rare = true},
               {.json = "alibi.slope_training", .offered = true}},
          },
  };
}

}  // namespace alibi::model::positions
