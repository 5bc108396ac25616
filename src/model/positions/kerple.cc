// KERPLE's logarithmic bias (Chi et al. 2022, arXiv 2205.09921): score - r1 log(1 + r2 |query - key|), with r1 and r2
// learned for each head, shared by the layers, and kept above 0.01 as in the authors' code.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/field_table.h"
#include "model/position.h"

namespace alibi::model::positions {
namespace {

constexpr float kLeastKerple = 0.01f;

constexpr PositionNumber kKerpleRateFactor{
    .name = "kerple_rate_factor", .json = "alibi.kerple_rate_factor", .usual = 8};

class Kerple : public PositionBias {
 public:
  using PositionBias::PositionBias;

  bool interpolates() const override { return true; }

  void declare(const VisitParameter& visit) override {
    const double rate_factor = kKerpleRateFactor.of(config_);
    const Shape shape = {config_.attention.heads};
    visit(r1_, {.name = "kerple.r1", .shape = shape, .start = Initializer::between(0, 2), .rate_factor = rate_factor});
    visit(r2_, {.name = "kerple.r2", .shape = shape, .start = Initializer::between(0, 1), .rate_factor = rate_factor});
  }

  std::vector<AttentionOptions> biases(int64_t distances, float scale) const override {
    const std::vector<float> r1 = r1_->value.to_floats(), r2 = r2_->value.to_floats();
    const int64_t heads = config_.attention.heads, rows = config_.attention.causal ? distances : 2 * distances - 1;
    Tensor table = Tensor::empty({rows, heads});
    for (int64_t row = 0; row < rows; ++row) {
      const double distance = static_cast<double>(scale) * distance_of(row, rows);
      for (int64_t h = 0; h < heads; ++h) {
        const auto head = static_cast<size_t>(h);
        table.data<float>()[row * heads + h] =
            static_cast<float>(-positive(r1[head]) * std::log1p(positive(r2[head]) * distance));
      }
    }
    AttentionOptions options;
    options.bias_by_distance = table;
    return {options};
  }

  BiasSums sums(int, const AttentionOptions& bias) const override {
    return {.dtable = Tensor(bias.bias_by_distance->shape())};
  }

  void backward(int, const BiasSums& sums, const Tensor&, Tensor&) const override {
    const std::vector<float> r1 = r1_->value.to_floats(), r2 = r2_->value.to_floats();
    const int64_t rows = sums.dtable.size(0), heads = sums.dtable.size(1);
    for (int64_t h = 0; h < heads; ++h) {
      const auto head = static_cast<size_t>(h);
      double dr1 = 0, dr2 = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const double dbias = static_cast<double>(sums.dtable.data<float>()[row * heads + h]);
        const double distance = distance_of(row, rows), a = positive(r1[head]), b = positive(r2[head]);
        dr1 -= dbias * std::log1p(b * distance);
        dr2 -= dbias * a * distance / (1 + b * distance);
      }
      if (r1[head] > kLeastKerple) r1_->gradient.data<float>()[h] += static_cast<float>(dr1);
      if (r2[head] > kLeastKerple) r2_->gradient.data<float>()[h] += static_cast<float>(dr2);
    }
  }

 private:
  static double positive(float value) { return static_cast<double>(std::max(value, kLeastKerple)); }
  /// The distance of a row of the table. That of an encoder also has negative distances.
  double distance_of(int64_t row, int64_t rows) const {
    return static_cast<double>(config_.attention.causal ? row : std::abs(row - rows / 2));
  }

  Parameter *r1_ = nullptr, *r2_ = nullptr;  // [heads]
};

}  // namespace

PositionMethod kerple() {
  return {
      .name = "kerple",
      .make = make_part<PositionBias, Kerple>,
      .style = {"kerple", "#8C564B", "#7A463C", "#C9968B", "#D6A89E", report::Marker::square},
      .fields = {number_field<kKerpleRateFactor>(
          {.least = 0, .most = 1e6}, "KERPLE: learning rate of r1 and r2 as a multiple of --learning-rate")},
  };
}

}  // namespace alibi::model::positions
