#include "nn/products.h"

#include <gtest/gtest.h>

#include "nn/linear.h"
#include "nn/product_check.h"
#include "nn/random_weights.h"
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

TEST(ProductInBlocks, IsTheProductOfWhatTheOperandsHold) {
  // Around the sizes of its blocks, 256 x 512 x 512.
  const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},     {255, 9, 17},   {257, 33, 7},
                              {5, 513, 40}, {3, 20, 1030}, {260, 520, 515}};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    if (!nn::product_provider().has_products(dtype)) continue;
    const auto run = [&](const nn::Product& p) { nn::multiply_in_blocks(p, dtype); };
    for (const auto& [m, n, k] : sizes) test::expect_product(run, m, n, k, DType::bfloat16);
  }
}

TEST(ProductInBlocks, MemoryIsBounded) {
  const Tensor a = random_tensor({900, 1500}, 1, 1, DType::bfloat16),
               b = random_tensor({1500, 1300}, 2, 1, DType::bfloat16);
  Tensor c({900, 1300});
  const auto run = [&] {
    nn::multiply_in_blocks({.m = 900,
                            .n = 1300,
                            .k = 1500,
                            .a = {a.raw(), 1500, false, DType::bfloat16},
                            .b = {b.raw(), 1300, false, DType::bfloat16},
                            .c = {c.raw(), 1300, false, DType::float32}},
                           DType::float32);
  };
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  run();
  // Whole copies would be 13 MB.
  EXPECT_LE(peak_tensor_bytes() - before, 5'000'000);
  EXPECT_EQ(nn::bytes_to_widen(DType::float32), 0);
  EXPECT_EQ(nn::bytes_to_widen(DType::bfloat16) == 0, nn::product_provider().has_products(DType::bfloat16));
}

TEST(IndependentRows, HaveTheBitsThatTheyHaveAlone) {
  test::for_each_isa([] {
    uint64_t seed = 100;
    for (const DType of_rows : {DType::float32, DType::bfloat16}) {
      for (const DType of_weights : test::kWeightTypes) {
        if (of_rows == DType::bfloat16 && of_weights == DType::float32) continue;
        for (const int64_t k : {32, 96, 768, 1056}) {
          if (k % numbers_in(of_weights) != 0) continue;
          const int64_t m = 75, n = 37;
          const Tensor x = random_tensor({m, k}, ++seed, 1, of_rows);
          const Tensor weights = test::random_weights(n, k, ++seed, of_weights);
          Tensor together({m, n}), alone({m, n});
          const IndependentRows independent;
          linear(x, weights, nullptr, together);
          for (int64_t begin = 0, count = 1; begin < m; begin += count, count = std::min(m - begin, 2 * count + 1)) {
            Tensor part = alone.slice(0, begin, begin + count);
            linear(x.slice(0, begin, begin + count), weights, nullptr, part);
          }
          EXPECT_TRUE(test::same_bits(together, alone)) << name_of(of_weights) << " k " << k;
          const auto expected =
              test::matmul_reference(test::doubles(x), false, test::numbers_of(weights), true, m, n, k);
          EXPECT_TRUE(test::relative_diff(test::doubles(together), expected) <= 2e-6);
        }
      }
    }
    // Operands that are not inner axis first.
    const Tensor a = random_tensor({20, 70}, 1), b = random_tensor({70, 30}, 2);
    Tensor together({20, 30}), alone({20, 30});
    const IndependentRows independent;
    matmul(a, false, b, false, together, false);
    for (int64_t row = 0; row < 20; ++row) {
      Tensor part = alone.slice(0, row, row + 1);
      matmul(a.slice(0, row, row + 1), false, b, false, part, false);
    }
    EXPECT_TRUE(test::same_bits(together, alone));
  });
  EXPECT_FALSE(IndependentRows::wanted());
}

}  // namespace
}  // namespace alibi::nn
