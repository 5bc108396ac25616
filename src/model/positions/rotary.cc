// Rotary positions (Su et al. 2021): the queries and keys of every layer are rotated by angles proportional to their
// positions, so that scores depend on the distance. They rotate all of head_dim, or its first part, as in GPT-NeoX.
#include <cmath>

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
  bool interpolates() const override { return true; }
  void rotate(Tensor& x, int64_t first, double scale) const override {
    Tensor part = x.slice(3, 0, rotated());
    nn::rotary(part, first, theta(), part, scale);
  }
  void rotate_backward(Tensor& dx, int64_t first) const override {
    Tensor part = dx.slice(3, 0, rotated());
    nn::rotary_backward(part, first, theta(), part);
  }

 private:
  double factor() const { return kPartialRotaryFactor.of(config_); }
  double share() const { return factor() * static_cast<double>(config_.head_dim()); }
  int64_t rotated() const { return std::llround(share()); }
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
                     {.above = 0, .most = 1}, "Rotary positions: share of head_dim that is rotated, from its start")},
  };
}

}  // namespace alibi::model::positions
