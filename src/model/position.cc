#include "model/position.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "nn/elementwise.h"
#include "nn/positions.h"

namespace alibi::model {
namespace {

/// Stream of random numbers, different from those of the shared parameters, so that these have the same initial values
/// with every method.
constexpr uint64_t kStream = core::mix(0x1417, ~uint64_t{1});

/// Press et al. 2022: subtracts slope * distance from the attention scores.
class Alibi : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;

  void check(const ConfigFields& fields) const override {
    const std::vector<float>& given = config_.attention.alibi_slopes;
    const auto count = static_cast<size_t>(slopes_of_layer());
    fields.refuse_if(
        given.size() > 1 && given.size() != count,
        fmt::format("{} are {} numbers, expected {} for {} heads{}, or one for all", fields.name("alibi_slopes"),
                    given.size(), count, config_.attention.heads, has_two_slopes() ? ", two for each" : ""));
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

  void declare(const VisitParameter& visit) override {
    if (!is_learned() || config_.layers == 0) return;
    const auto low = static_cast<float>(std::max<double>(least_exponent, -config_.attention.alibi_bias_max));
    std::vector<float> exponents = start();
    for (float& x : exponents) x = std::clamp(std::log2(x), least_exponent, most_exponent);
    const bool random = config_.attention.slope_training == SlopeTraining::learned_random;
    visit(exponents_, {.name = "alibi.log2_slopes",
                       .shape = {config_.layers, config_.attention.heads},
                       .start = random ? Initializer::between(low, 0) : Initializer::rows(std::move(exponents)),
                       .stream = kStream});
  }

  bool bounds_far_keys() const override { return true; }
  std::vector<AttentionOptions> biases(int64_t) const override {
    if (exponents_ == nullptr) return {with_slopes(start())};
    std::vector<AttentionOptions> layers;
    for (int layer = 0; layer < config_.layers; ++layer) layers.push_back(with_slopes(learned(layer).to_floats()));
    return layers;
  }

  void bias_backward(int layer, const AttentionOptions&, const TakeBiasGradients& attention_backward) const override {
    if (exponents_ == nullptr) return attention_backward({});
    const Tensor slopes = learned(layer);
    Tensor dslopes(slopes.shape(), DType::float32);
    attention_backward({.dtable = nullptr, .dslopes = &dslopes});
    Tensor dexponents = exponents_->gradient.slice(0, layer, layer + 1);
    nn::exp2_backward(dslopes, exponents_->value.slice(0, layer, layer + 1), least_exponent, most_exponent, dexponents);
  }

 private:
  /// A smaller slope adds less than 0.001 to a score over a million tokens. A larger one gives the nearest key all the
  /// weight.
  static constexpr float least_exponent = -30, most_exponent = 10;

  AttentionOptions with_slopes(std::vector<float> slopes) const {
    AttentionOptions options;
    options.tolerance = config_.attention.tolerance;
    options.alibi_slopes = std::move(slopes);
    if (is_symmetric()) return options;
    const auto heads = static_cast<size_t>(config_.attention.heads);
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
  int slopes_of_layer() const { return has_two_slopes() ? 2 * config_.attention.heads : config_.attention.heads; }

  /// Slopes of all layers, or their initial values.
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
    nn::exp2(exponents, least_exponent, most_exponent, result);
    return result;
  }

  Parameter* exponents_ = nullptr;  // base-2 logarithms of the slopes, [layers, heads]; null if the slopes are fixed
};

/// Vaswani et al. 2017, section 3.5: sines and cosines added to the input.
class Sinusoidal : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;

  bool scales_embeddings() const override { return true; }
  void enter(const Tensor& x, int64_t first, Tensor& y) const override {
    const int64_t end = first + x.size(1);
    nn::add_positions(x, table(end).slice(0, first, end), y);
  }

 private:
  /// Returns a table of at least `length` rows. It grows to the longest length requested. Several threads may call
  /// this. Reading token by token requests one row more each time, so growth must be rare.
  Tensor table(int64_t length) const {
    const std::lock_guard lock(mutex_);
    if (!table_.defined() || table_.size(0) < length) {
      const int64_t held = table_.defined() ? table_.size(0) : 0;
      Tensor table = Tensor::empty({std::max(length, held + held / 2), config_.d_model}, DType::float32);
      nn::sinusoids(table);
      table_ = table;
    }
    return table_;
  }

  mutable std::mutex mutex_;
  mutable Tensor table_;
};

/// Su et al. 2021: rotates the queries and keys of every layer over all of head_dim.
class Rotary : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;

  void check(const ConfigFields& fields) const override {
    fields.refuse_if(config_.head_dim() % 2 != 0,
                     fmt::format("{} / {} is {}, expected an even head_dim for rotary positions",
                                 fields.name("d_model"), fields.name("heads"), config_.head_dim()));
  }
  void rotate(Tensor& q, Tensor& k, int64_t first, double scale) const override {
    nn::rotary(q, first, theta(), q, scale);
    nn::rotary(k, first, theta(), k, scale);
  }
  void rotate_backward(Tensor& dq, Tensor& dk, int64_t first) const override {
    nn::rotary_backward(dq, first, theta(), dq);
    nn::rotary_backward(dk, first, theta(), dk);
  }

 private:
  float theta() const { return static_cast<float>(config_.attention.rotary_theta); }
};

/// Raffel et al. 2020: a learned bias for each head and bucket of distances, shared by the layers.
class T5 : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;

  void check(const ConfigFields& fields) const override {
    fields.range("t5_buckets", config_.attention.t5_buckets, config_.attention.causal ? 2 : 4, 4096);
    fields.range("t5_max_distance", config_.attention.t5_max_distance, config_.attention.t5_buckets, largest_extent);
  }
  void declare(const VisitParameter& visit) override {
    visit(table_, {.name = "relative_bias.weight",
                   .shape = {config_.attention.t5_buckets, config_.attention.heads},
                   .start = Initializer::normal(static_cast<float>(config_.attention.t5_init)),
                   .stream = kStream,
                   .rate_factor = config_.attention.t5_rate_factor});
  }
  std::vector<AttentionOptions> biases(int64_t) const override {
    AttentionOptions options;
    options.buckets = BucketedBias{table_->value, config_.attention.t5_max_distance};
    return {options};
  }
  void bias_backward(int, const AttentionOptions&, const TakeBiasGradients& attention_backward) const override {
    attention_backward({.dtable = &table_->gradient, .dslopes = nullptr});
  }

 private:
  Parameter* table_ = nullptr;
};

/// A learned table of max_length vectors is added to the input.
class Learned : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;

  std::optional<int64_t> end() const override { return config_.embedding.max_length; }
  void fit(TransformerConfig& config, int64_t train_length) const override {
    config.embedding.max_length = train_length;
  }
  void declare(const VisitParameter& visit) override {
    visit(table_, {.name = "wpe.weight",
                   .shape = {config_.embedding.max_length, config_.d_model},
                   .start = Initializer::normal(0.02f),
                   .stream = kStream});
  }
  void enter(const Tensor& x, int64_t first, Tensor& y) const override {
    const int64_t last = first + x.size(1);
    alibi::check(last <= config_.embedding.max_length,
                 "[transformer] learned positions end at {}, the input {} {}; no learned model runs past its table",
                 config_.embedding.max_length, first > 0 ? "goes to" : "has length", last);
    nn::add_positions(x, table_->value.slice(0, first, last), y);
  }
  void enter_backward(const Tensor& dy, int64_t first) const override {
    Tensor rows = table_->gradient.slice(0, first, first + dy.size(1));
    nn::add_positions_backward(dy, rows);
  }

 private:
  Parameter* table_ = nullptr;
};

/// No positions: only the causal mask.
class None : public PositionMethod {
 public:
  using PositionMethod::PositionMethod;
};

}  // namespace

void PositionMethod::enter(const Tensor& x, int64_t, Tensor& y) const { nn::convert(x, y); }

std::unique_ptr<PositionMethod> make_position(const TransformerConfig& config) {
  switch (config.position) {
    case Position::alibi:
      return std::make_unique<Alibi>(config);
    case Position::sinusoidal:
      return std::make_unique<Sinusoidal>(config);
    case Position::rotary:
      return std::make_unique<Rotary>(config);
    case Position::t5:
      return std::make_unique<T5>(config);
    case Position::learned:
      return std::make_unique<Learned>(config);
    case Position::none:
      return std::make_unique<None>(config);
  }
  fail_usage("[config] position is {}, which is none", static_cast<int>(config.position));
}

}  // namespace alibi::model
