// -slope * |distance|, with a slope for each side (Press et al. 2022). Without slopes, it is no bias.
#pragma once

#include "attention/bias/bias.h"

namespace alibi::kernels {

class LinearBias final : public Bias {
 public:
  /// A slope of infinity closes a direction, whose keys are not seen. `symmetric`: the gradient of the slope sums both
  /// directions.
  LinearBias(float before, float after, bool symmetric) : before_(before), after_(after), symmetric_(symmetric) {}

  double precise_at(int64_t distance) const override;
  float at(int64_t distance) const override;
  bool slides() const override { return true; }
  void tile(int64_t first, int64_t origin, int64_t count, float factor, float* values) const override;
  bool is_level(int64_t first, int64_t last) const override;
  float magnitude() const override;
  float rise() const override { return 0; }
  bool falls(Side side, float) const override { return slope(side) > 0; }
  double beyond(Side side, int64_t distance) const override;
  void beyond(Side side, int64_t first, int step, int64_t count, float* values) const override;
  double fall(Side side, int64_t keys) const override;
  double horizon(Side side, double log_weight, int64_t keys) const override;
  int64_t parameters() const override { return 1; }
  void add_gradient(int64_t first, int64_t nearest, std::span<const double> dscores, double* sums) const override;

 private:
  float slope(Side side) const { return side == Side::before ? before_ : after_; }
  /// The slope on the side of the distance. It is 0 at distance 0, even in a closed direction.
  float slope(int64_t distance) const { return distance > 0 ? before_ : distance < 0 ? after_ : 0; }

  float before_, after_;
  bool symmetric_;
};

}  // namespace alibi::kernels
