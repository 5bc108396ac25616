// Products in integers: against their definition in float64, bit by bit against the same rows computed alone and on
// other instruction sets, and near the exact products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/blocks.h"
#include "nn/linear.h"
#include "nn/products.h"
#include "nn/random_weights.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

constexpr DType kBlockTypes[] = {DType::q8_0, DType::q4_0, DType::q4_k, DType::q5_k, DType::q6_k};

/// Rows as RoundedRows has them.
std::vector<double> rounded_to_8_bits(const Tensor& x) {
  std::vector<double> values = test::doubles(x);
  for (size_t begin = 0; begin < values.size(); begin += 32) {
    float most = 0;
    for (size_t i = begin; i < begin + 32; ++i) most = std::max(most, std::abs(static_cast<float>(values[i])));
    const float inverse = most >= 0x1p-100f ? 127 / most : 0;
    for (size_t i = begin; i < begin + 32; ++i) {
      values[i] = std::nearbyint(static_cast<float>(values[i]) * inverse) * static_cast<double>(most / 127);
    }
  }
  return values;
}

Tensor product_in_integers(const Tensor& x, const Tensor& weights, const Tensor* bias = nullptr) {
  const IntegerProducts integers;
  Tensor y({x.size(0), weights.size(0)});
  linear(x, weights, bias, y);
  return y;
}

TEST(IntegerProducts, AreTheProductsOfTheRoundedRows) {
  std::vector<Tensor> first;  // of the first instruction set
  test::for_each_isa([&] {
    uint64_t seed = 0;
    size_t number = 0;
    for (const DType type : kBlockTypes) {
      for (const DType of_rows : {DType::float32, DType::bfloat16}) {
        for (const int64_t k : {32, 96, 256, 1280}) {
          if (k % numbers_in(type) != 0) continue;
          for (const int64_t m : {1, 2, 3, 7, 24, 25, 67}) {
            const int64_t n = 45;
            const Tensor x = test::random_tensor({m, k}, ++seed, 1, of_rows);
            const Tensor weights = test::random_weights(n, k, ++seed, type), bias = test::random_tensor({n}, ++seed);
            const Tensor y = product_in_integers(x, weights, &bias);
            std::vector<double> expected =
                test::matmul_reference(rounded_to_8_bits(x), false, test::numbers_of(weights), true, m, n, k);
            for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias.to_floats()[i % static_cast<size_t>(n)];
            EXPECT_LE(test::relative_diff(test::doubles(y), expected), 2e-6) << name_of(type) << ' ' << m << ' ' << k;
            Tensor exact({m, n});
            linear(x, weights, &bias, exact);
            EXPECT_LE(test::relative_diff(test::doubles(y), test::doubles(exact)), 0.02) << name_of(type);
            if (number == first.size()) first.push_back(y);
            EXPECT_TRUE(test::same_bits(y, first[number++])) << name_of(type) << ' ' << m << ' ' << k;
          }
        }
      }
    }
  });
}

TEST(IntegerProducts, OfARowDoNotDependOnTheOthers) {
  for (const DType type : kBlockTypes) {
    const int64_t m = 70, n = 37, k = 512;
    const Tensor x = test::random_tensor({m, k}, 1), weights = test::random_weights(n, k, 2, type);
    const Tensor together = product_in_integers(x, weights);
    for (int64_t begin = 0, count = 1; begin < m; begin += count, count = std::min(m - begin, 2 * count + 1)) {
      const Tensor alone = product_in_integers(x.slice(0, begin, begin + count), weights);
      EXPECT_TRUE(test::same_bits(alone, together.slice(0, begin, begin + count).clone())) << name_of(type) << begin;
    }
  }
}

TEST(IntegerProducts, HaveRoomForTheLargestSums) {
  test::for_each_isa([] {
    for (const DType type : {DType::q4_0, DType::q4_k, DType::q5_k}) {
      const int64_t m = 40, n = 19, k = 512;
      Tensor x({m, k}), weights = test::random_weights(n, k, 1, type);
      for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = i / k % 2 == 0 ? 127 : -127;
      auto* const bytes = static_cast<unsigned char*>(weights.raw());
      const size_t size = size_of(type), header = type == DType::q4_0 ? 2 : 16;
      for (size_t at = 0; at < weights.bytes(); at += size) {  // the largest quants in one row, the lowest in the next
        std::memset(bytes + at + header, at / (weights.bytes() / n) % 2 == 0 ? 0xff : 0, size - header);
      }
      const std::vector<double> expected =
          test::matmul_reference(test::doubles(x), false, test::numbers_of(weights), true, m, n, k);
      const Tensor y = product_in_integers(x, weights);
      EXPECT_LE(test::relative_diff(test::doubles(y), expected), 2e-6) << name_of(type);
      EXPECT_TRUE(test::same_bits(product_in_integers(x.slice(0, 0, 2), weights), y.slice(0, 0, 2).clone()));
    }
  });
}

TEST(IntegerProducts, TakeTheLowestQuantAndNumbersThatAreNotFinite) {
  std::vector<q8_block> blocks(3);
  for (q8_block& block : blocks) {
    block.scale = float16(1.0f);
    std::fill_n(block.values, 32, int8_t{-128});
  }
  const Tensor weights = Tensor::view(blocks.data(), {3, 1}, DType::q8_0);
  for (const int64_t m : {4, 40}) {
    Tensor x({m, 32});
    x.fill(-2);
    x.data<float>()[0] = std::numeric_limits<float>::infinity();
    x.data<float>()[32] = std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 64; i < 96; ++i) x.data<float>()[i] = 0x1p-140f;
    const std::vector<float> y = product_in_integers(x, weights).to_floats();
    for (int64_t i = 0; i < 3 * m; ++i) {
      const float found = y[static_cast<size_t>(i)];
      EXPECT_EQ(std::isnan(found), i < 6) << i;
      if (i >= 6) {
        EXPECT_NEAR(found, i < 9 ? 0.0f : 8192.0f, 1e-2) << i;
      }
    }
  }
}

TEST(IntegerProducts, AreOnlyThoseWithWeightsInBlocks) {
  const Tensor x = test::random_tensor({5, 64}, 1), weights = test::random_tensor({7, 64}, 2);
  Tensor y({5, 7});
  linear(x, weights, nullptr, y);
  EXPECT_TRUE(test::same_bits(product_in_integers(x, weights), y));
}

}  // namespace
}  // namespace alibi::nn
