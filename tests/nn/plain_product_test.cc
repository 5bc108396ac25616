#include "nn/plain_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "nn/product_check.h"

namespace alibi::nn {
namespace {

TEST(PlainProduct, IsTheProductOfWhatTheOperandsHold) {
  const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {33, 9, 17}, {5, 70, 40}};
  for (const auto& [m, n, k] : sizes) {
    test::expect_product(nn::run_plainly, m, n, k, DType::float32);
    test::expect_product(nn::run_plainly, m, n, k, DType::bfloat16);
  }
}

TEST(PlainProduct, TurnsAMatrix) {
  const test::Framed from(5, 3, 1);
  std::vector<float> turned(15);
  nn::turn_plainly(from.inside.data<float>(), from.inside.stride(0), 5, 3, turned.data());
  const std::vector<float> values = from.inside.to_floats();
  for (size_t row = 0; row < 5; ++row) {
    for (size_t column = 0; column < 3; ++column) EXPECT_EQ(turned[column * 5 + row], values[row * 3 + column]);
  }
}

}  // namespace
}  // namespace alibi::nn
