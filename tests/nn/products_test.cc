#include "nn/products.h"

#include <gtest/gtest.h>

#include "nn/product_check.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

TEST(PlainProduct, IsTheProductOfWhatTheOperandsHold) {
  const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {33, 9, 17}, {5, 70, 40}};
  for (const auto& [m, n, k] : sizes) {
    test::expect_product(nn::multiply_plainly, m, n, k, DType::float32);
    test::expect_product(nn::multiply_plainly, m, n, k, DType::bfloat16);
  }
}

TEST(WidenedProduct, IsTheProductOfWhatTheOperandsHold) {
  // Around the sizes of its blocks, 256 x 512 x 512.
  const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},     {255, 9, 17},   {257, 33, 7},
                              {5, 513, 40}, {3, 20, 1030}, {260, 520, 515}};
  for (const auto& [m, n, k] : sizes) test::expect_product(nn::multiply_widened, m, n, k, DType::bfloat16);
}

TEST(WidenedProduct, MemoryIsBounded) {
  const Tensor a = random_tensor({900, 1500}, 1, 1, DType::bfloat16),
               b = random_tensor({1500, 1300}, 2, 1, DType::bfloat16);
  Tensor c({900, 1300});
  const auto run = [&] {
    nn::multiply_widened({.m = 900,
                          .n = 1300,
                          .k = 1500,
                          .a = {a.raw(), 1500, false, DType::bfloat16},
                          .b = {b.raw(), 1300, false, DType::bfloat16},
                          .c = {c.raw(), 1300, false, DType::float32}});
  };
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  run();
  // Whole copies would be 13 MB.
  EXPECT_LE(peak_tensor_bytes() - before, 5'000'000);
  EXPECT_EQ(nn::bytes_to_widen(DType::float32), 0);
  EXPECT_EQ(nn::bytes_to_widen(DType::bfloat16) == 0, nn::product_provider().has_products(DType::bfloat16));
}

}  // namespace
}  // namespace alibi::nn
