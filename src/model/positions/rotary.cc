// Rotary positions (Su et al. 2021): the queries and keys of every layer are rotated by angles proportional to their
// positions, so that scores depend on the distance. They rotate all of head_dim, or its first part, as in GPT-NeoX.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/field_table.h"
#include "model/position.h"
#include "nn/positions.h"

namespace alibi::model::positions {
namespace {

constexpr PositionNumber kPartialRotaryFactor{
    .name = "partial_rotary_factor", .json = "alibi.partial_rotary_factor", .usual = 1};

class Rotary : public Rotation {
 public:
  using Rotation::Rotation;

  void check(const ConfigFields& fields) const override {
    const AttentionConfig& attention = config_.attention;
    fields.refuse_if(config_.head_dim() % 2 != 0,
                     fmt::format("{} / {} is {}, expected an even head_dim for rotary positions",
                                 fields.name("d_model"), fields.name("heads"), config_.head_dim()));
    fields.refuse_if(rotated() < 2 || rotated() % 2 != 0 || std::abs(share() - static_cast<double>(rotated())) > 1e-6,
                     fmt::format("{} is {}, and {} times head_dim {} is {}, expected an even number from 2 on",
                                 kPartialRotaryFactor.name, factor(), factor(), config_.head_dim(), share()));
    fields.refuse_if(attention.clip_qkv > 0 && !attention.qk_norm,
                     fmt::format("{} is {}, expected 0 with rotary positions and no {}", fields.name("clip_qkv"),
                                 attention.clip_qkv, fields.name("qk_norm")));
  }
  /// With ALiBi, half of the dimensions (docs/explanation/paper.md, E15).
  void set_defaults(TransformerConfig& config, int64_t /*train_length*/) const override {
    if (config.position.bias == "alibi" && config.head_dim() % 4 == 0) kPartialRotaryFactor.set(config, 0.5);
  }
  bool interpolates() const override { return true; }
  void rotate(Tensor& x, int64_t first, const PositionScale& scale) const override {
    Tensor part = rotated_part(x);
    const nn::Frequencies frequencies = frequencies_for(scale);
    nn::rotary(part, first, frequencies, part);
  }
  void rotate_backward(Tensor& dx, int64_t first) const override {
    Tensor part = rotated_part(dx);
    nn::rotary_backward(part, first, theta(), part);
  }

 private:
  /// Of queries or keys [batch, rows, heads, head_dim].
  Tensor rotated_part(const Tensor& x) const {
    const AttentionConfig& attention = config_.attention;
    const int64_t heads = x.size(2) - x.size(2) * attention.nope_heads / attention.heads;
    return x.slice(2, 0, heads).slice(3, 0, rotated());
  }
  double factor() const { return kPartialRotaryFactor.of(config_); }
  double share() const { return factor() * static_cast<double>(config_.head_dim()); }
  int64_t rotated() const { return std::llround(share()); }
  /// The formulas of ntk and yarn are those of transformers (modeling_rope_utils.py) and of YaRN's authors.
  nn::Frequencies frequencies_for(const PositionScale& position) const {
    const auto scale = static_cast<double>(position.scale), dim = static_cast<double>(rotated());
    const auto theta = static_cast<double>(this->theta());
    if (position.rotary == RotaryScaling::linear || scale >= 1) return nn::rotary_frequencies(rotated(), theta, scale);
    if (position.rotary == RotaryScaling::ntk) {
      return nn::rotary_frequencies(rotated(), theta * std::pow(scale, -dim / (dim - 2)));
    }
    nn::Frequencies found = nn::rotary_frequencies(rotated(), theta);
    // The dimension that turns this often within the training length.
    const auto dimension = [&](double turns) {
      const double wavelength = static_cast<double>(position.trained) / turns;
      return dim * std::log(wavelength / (2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double first = std::max(std::floor(dimension(32)), 0.0);
    const double last = std::max(std::min(std::ceil(dimension(1)), dim - 1), first + 0.001);
    for (size_t i = 0; i < found.of_pairs.size(); ++i) {
      const double share = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
      found.of_pairs[i] *= share * scale + (1 - share);
    }
    found.magnitude = 1 - 0.1 * std::log(scale);
    return found;
  }
  float theta() const { return static_cast<float>(config_.attention.rotary_theta); }
};

}  // namespace

PositionMethod rotary() {
  return {
      .name = "rotary",
      .formula = "queries and keys rotated by i theta^(-2 d / head_dim)",
      .paper = "Su et al. 2021, arXiv 2104.09864",
      .cost = "no parameters; every key is visited, unless a bias is added",
      .make = make_part<Rotation, Rotary>,
      .style = {"rotary", "#009E73", "#00734F", "#2BC79A", "#2BC79A", report::Marker::triangle},
      .fields = {{{ALIBI_FIELD("rotary_theta", transformer.attention.rotary_theta), .range = {.above = 1, .most = 1e12},
                   .help = "Rotary positions: base of the wavelengths"},
                  {.json = "alibi.rotary_theta", .always_written = true}},
                 number_field<kPartialRotaryFactor>(
                     {.above = 0, .most = 1}, "Rotary positions: share of head_dim that is rotated, from its start",
                     "1; 0.5 with alibi")},
  };
}

}  // namespace alibi::model::positions
