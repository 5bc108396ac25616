// Biases that are a formula of the distance with two numbers r1 and r2, which are learned for each head, shared by the
// layers, and kept within bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/field_table.h"
#include "model/position.h"

namespace alibi::model::positions {

/// Formula has the method's `name`, the least r1 and r2 (`min_r`), the largest r2 (`max_r2`), `value(r1, r2,
/// distance)` and its `derivative_by_r2`. The value is proportional to r1.
template <class Formula, const PositionNumber& rate_factor>
class DistanceFormula : public PositionBias {
 public:
  using PositionBias::PositionBias;

  bool interpolates() const override { return true; }

  void declare(const VisitParameter& visit) override {
    const Shape shape = {config_.attention.heads};
    const auto declare_one = [&](Parameter*& parameter, const char* name, float most) {
      visit(parameter, {.name = fmt::format("{}.{}", Formula::name, name),
                        .shape = shape,
                        .start = Initializer::between(0, most),
                        .rate_factor = rate_factor.of(config_)});
    };
    declare_one(r1_, "r1", 2);
    declare_one(r2_, "r2", 1);
  }

  std::vector<AttentionOptions> biases(int64_t distances, float scale) const override {
    const int64_t heads = config_.attention.heads, rows = config_.attention.causal ? distances : 2 * distances - 1;
    Tensor table = Tensor::empty({rows, heads});
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t row = 0; row < rows; ++row) {
        const double distance = static_cast<double>(scale) * distance_of(row, rows);
        table.data<float>()[row * heads + h] = static_cast<float>(Formula::value(r1(h), r2(h), distance));
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
    const int64_t rows = sums.dtable.size(0), heads = sums.dtable.size(1);
    for (int64_t h = 0; h < heads; ++h) {
      double dr1 = 0, dr2 = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const double dbias = static_cast<double>(sums.dtable.data<float>()[row * heads + h]);
        const double distance = distance_of(row, rows);
        dr1 += dbias * Formula::value(1, r2(h), distance);
        dr2 += dbias * Formula::derivative_by_r2(r1(h), r2(h), distance);
      }
      // A number at a bound is held there.
      if (of(r1_, h) > Formula::min_r) r1_->gradient.data<float>()[h] += static_cast<float>(dr1);
      if (of(r2_, h) > Formula::min_r && of(r2_, h) < Formula::max_r2) {
        r2_->gradient.data<float>()[h] += static_cast<float>(dr2);
      }
    }
  }

 private:
  static float of(const Parameter* parameter, int64_t head) { return parameter->value.data<float>()[head]; }
  double r1(int64_t head) const { return static_cast<double>(std::max(of(r1_, head), Formula::min_r)); }
  double r2(int64_t head) const {
    return static_cast<double>(std::clamp(of(r2_, head), Formula::min_r, Formula::max_r2));
  }
  /// The distance of a row of the table. That of an encoder also has negative distances.
  double distance_of(int64_t row, int64_t rows) const {
    return static_cast<double>(config_.attention.causal ? row : std::abs(row - rows / 2));
  }

  Parameter *r1_ = nullptr, *r2_ = nullptr;  // [heads]
};

}  // namespace alibi::model::positions
