// KERPLE's logarithmic bias (Chi et al. 2022, arXiv 2205.09921): score - r1 log(1 + r2 |query - key|), with r1 and r2
// learned, and kept above 0.01 as in the authors' code.
#include <limits>

#include "model/positions/distance_formula.h"

namespace alibi::model::positions {
namespace {

constexpr PositionNumber kKerpleRateFactor{
    .name = "kerple_rate_factor", .json = "alibi.kerple_rate_factor", .usual = 8};

struct KerpleFormula {
  static constexpr const char* name = "kerple";
  static constexpr float min_r = 0.01f, max_r2 = std::numeric_limits<float>::infinity();
  static double value(double r1, double r2, double distance) { return -r1 * std::log1p(r2 * distance); }
  static double derivative_by_r2(double r1, double r2, double distance) { return -r1 * distance / (1 + r2 * distance); }
};

}  // namespace

PositionMethod kerple() {
  return {
      .name = "kerple",
      .formula = "score - r1[head] log(1 + r2[head] |i - j|)",
      .paper = "Chi et al. 2022, arXiv 2205.09921",
      .cost = "2 parameters for each head; far keys are skipped where the bias falls enough",
      .make = make_part<PositionBias, DistanceFormula<KerpleFormula, kKerpleRateFactor>>,
      .style = {"kerple", "#8C564B", "#7A463C", "#C9968B", "#D6A89E", report::Marker::square},
      .fields = {number_field<kKerpleRateFactor>(
          {.least = 0, .most = 1e6}, "KERPLE: learning rate of r1 and r2 as a multiple of --learning-rate")},
  };
}

}  // namespace alibi::model::positions
