#include "nn/positions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

TEST(Positions, SinusoidsAreVaswanisFormula) {
  Tensor table = Tensor::empty({50, 6});
  nn::sinusoids(table);
  for (int p = 0; p < 50; ++p) {
    for (int i = 0; i < 3; ++i) {
      const double angle = p / std::pow(10000.0, 2.0 * i / 6);
      EXPECT_NEAR(table.data<float>()[p * 6 + 2 * i], std::sin(angle), 1e-6);
      EXPECT_NEAR(table.data<float>()[p * 6 + 2 * i + 1], std::cos(angle), 1e-6);
    }
  }
}

TEST(Positions, AreAddedToEveryEntry) {
  const Tensor x = random_tensor({3, 70, 5}, 1), table = random_tensor({70, 5}, 2), dy = random_tensor({3, 70, 5}, 3);
  Tensor y = Tensor::empty(x.shape()), dtable = table.clone();
  nn::add_positions(x, table, y);
  nn::add_positions_backward(dy, dtable);
  const auto at = [](const Tensor& tensor, int64_t i) { return static_cast<double>(tensor.data<float>()[i]); };
  for (int64_t i = 0; i < 350; ++i) {
    double sum = at(table, i);  // which was there
    for (int64_t b = 0; b < 3; ++b) {
      EXPECT_NEAR(at(y, 350 * b + i), at(x, 350 * b + i) + at(table, i), 1e-6);
      sum += at(dy, 350 * b + i);
    }
    EXPECT_NEAR(at(dtable, i), sum, 1e-6);
  }
}

TEST(Positions, ShapesAreChecked) {
  Tensor x({2, 4, 3}), table({5, 3}), half({4, 3}, DType::bfloat16);
  EXPECT_THROW(nn::add_positions(x, table, x), Error);
  EXPECT_THROW(nn::add_positions_backward(x, table), Error);
  EXPECT_THROW(nn::add_positions(x, half, x), Error);
  EXPECT_THROW(nn::sinusoids(half), Error);
}

}  // namespace
}  // namespace alibi::nn
