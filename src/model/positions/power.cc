// A power of the distance (KERPLE's second form, Chi et al. 2022, arXiv 2205.09921; the prior of BAM, Bianchessi et al.
// 2025): score - r1 |query - key|^r2, with r1 and r2 learned, r1 at least 0.01 and r2 from 0.01 to 2. ALiBi is r2 = 1.
#include "model/positions/distance_formula.h"

namespace alibi::model::positions {
namespace {

constexpr PositionNumber kPowerRateFactor{.name = "power_rate_factor", .json = "alibi.power_rate_factor", .usual = 8};

struct PowerFormula {
  static constexpr const char* name = "power";
  static constexpr float min_r = 0.01f, max_r2 = 2;
  static double value(double r1, double r2, double distance) { return -r1 * std::pow(distance, r2); }
  static double derivative_by_r2(double r1, double r2, double distance) {
    return distance > 0 ? value(r1, r2, distance) * std::log(distance) : 0;
  }
};

}  // namespace

PositionMethod power() {
  return {
      .name = "power",
      .formula = "score - r1[head] |i - j|^r2[head]",
      .paper = "Chi et al. 2022, arXiv 2205.09921; BAM, Bianchessi et al. 2025",
      .cost = "2 parameters for each head; far keys are skipped where the bias falls enough",
      .make = make_part<PositionBias, DistanceFormula<PowerFormula, kPowerRateFactor>>,
      .style = {"power", "#17BECF", "#0E7C87", "#5FD6E2", "#8FE3EB", report::Marker::triangle},
      .fields = {number_field<kPowerRateFactor>(
          {.least = 0, .most = 1e6},
          "Power of the distance: learning rate of r1 and r2 as a multiple of --learning-rate")},
  };
}

}  // namespace alibi::model::positions
