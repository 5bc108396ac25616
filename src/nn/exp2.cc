#include "nn/exp2.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/operators.h"
#include "nn/shape.h"

namespace alibi::nn {

void exp2(const Tensor& x, float least, float most, Tensor& y) {
  if (ran_elsewhere(&Operators::exp2, "exp2", x, least, most, y)) return;
  check_vector("exp2", "x", x, x.elements(), DType::float32);
  check_vector("exp2", "y", y, x.elements(), DType::float32);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) to[i] = std::exp2(std::clamp(from[i], least, most));
}

void exp2_backward(const Tensor& dy, const Tensor& x, float least, float most, Tensor& dx) {
  if (ran_elsewhere(&Operators::exp2_backward, "exp2_backward", dy, x, least, most, dx)) return;
  check_vector("exp2_backward", "x", x, x.elements(), DType::float32);
  check_vector("exp2_backward", "dy", dy, x.elements(), DType::float32);
  check_vector("exp2_backward", "dx", dx, x.elements(), DType::float32);
  const float* at = x.data<float>();
  const float* from = dy.data<float>();
  float* to = dx.data<float>();
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (least <= at[i] && at[i] <= most) to[i] += std::numbers::ln2_v<float> * std::exp2(at[i]) * from[i];
  }
}

}  // namespace alibi::nn
