// Rotary positions (Su et al. 2021): the queries and keys of every layer are rotated by angles proportional to their
// positions, over all of head_dim, so that scores depend on the distance.
#include "model/field_table.h"
#include "model/position.h"
#include "nn/positions.h"

namespace alibi::model::positions {
namespace {

class Rotary : public Rotation {
 public:
  using Rotation::Rotation;

  void check(const ConfigFields& fields) const override {
    const AttentionConfig& attention = config_.attention;
    fields.refuse_if(config_.head_dim() % 2 != 0,
                     fmt::format("{} / {} is {}, expected an even head_dim for rotary positions",
                                 fields.name("d_model"), fields.name("heads"), config_.head_dim()));
    fields.refuse_if(attention.clip_qkv > 0 && !attention.qk_norm,
                     fmt::format("{} is {}, expected 0 with rotary positions and no {}", fields.name("clip_qkv"),
                                 attention.clip_qkv, fields.name("qk_norm")));
  }
  bool interpolates() const override { return true; }
  void rotate(Tensor& x, int64_t first, double scale) const override { nn::rotary(x, first, theta(), x, scale); }
  void rotate_backward(Tensor& dx, int64_t first) const override { nn::rotary_backward(dx, first, theta(), dx); }

 private:
  float theta() const { return static_cast<float>(config_.attention.rotary_theta); }
};

}  // namespace

PositionMethod rotary() {
  return {
      .name = "rotary",
      .make = make_part<Rotation, Rotary>,
      .style = {"rotary", "#009E73", "#00734F", "#2BC79A", "#2BC79A", report::Marker::triangle},
      .fields = {{{ALIBI_FIELD("rotary_theta", transformer.attention.rotary_theta), .range = {.above = 1, .most = 1e12},
                   .help = "Rotary positions: base of the wavelengths"},
                  {.json = "alibi.rotary_theta", .always_written = true}}},
  };
}

}  // namespace alibi::model::positions
