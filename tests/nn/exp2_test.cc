#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "nn/elementwise.h"
#include "testing.h"

namespace alibi::nn {
namespace {

const std::vector<float> kExponents{-1e30f, -8.5f, -8, -7.25f, 0, 2.5f, 3, 3.5f, 1e30f};

TEST(Exp2, IsAPowerOfTwoBetweenItsBounds) {
  const Tensor x = Tensor::from(kExponents, {3, 3});
  Tensor y(x.shape());
  nn::exp2(x, -8, 3, y);
  for (size_t i = 0; i < kExponents.size(); ++i) {
    const double expected = std::exp2(std::clamp<double>(kExponents[i], -8, 3));
    EXPECT_TRUE(std::abs(static_cast<double>(y.to_floats()[i]) - expected) <= 1e-6 * expected) << kExponents[i];
  }
}

TEST(Exp2, BackwardAddsTheDerivativeAndNothingBeyondTheBounds) {
  const Tensor x = Tensor::from(kExponents, {9}), dy = test::random_tensor({9}, 2),
               before = test::random_tensor({9}, 3);
  Tensor dx = before.clone();
  nn::exp2_backward(dy, x, -8, 3, dx);
  for (size_t i = 0; i < kExponents.size(); ++i) {
    const double at = kExponents[i];
    const double slope = at < -8 || at > 3 ? 0 : std::numbers::ln2 * std::exp2(at);
    const double expected = static_cast<double>(before.to_floats()[i]) + slope * static_cast<double>(dy.to_floats()[i]);
    EXPECT_TRUE(std::abs(static_cast<double>(dx.to_floats()[i]) - expected) <= 1e-5) << at;
  }
}

}  // namespace
}  // namespace alibi::nn
