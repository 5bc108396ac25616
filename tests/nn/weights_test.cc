#include "nn/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.h"
#include "nn/cross_entropy.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/products.h"
#include "nn/random_weights.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::kWeightTypes;
using test::numbers_of;
using test::random_tensor;
using test::random_weights;
using test::relative_diff;

/// Relative to the largest expected value: float32 sums of k products.
constexpr double kSumTolerance = 2e-6;

TEST(Weights, WidenedCopiesAreExact) {
  test::for_each_isa([] {
    for (const DType dtype : kWeightTypes) {
      for (const int64_t columns : {32, 96, 65, 1, 512}) {
        if (columns % numbers_in(dtype) != 0) continue;
        const Tensor weights = random_weights(7, columns, 1, dtype), wide = widened(weights);
        EXPECT_EQ(wide.shape(), (Shape{7, columns}));
        const std::vector<double> expected = numbers_of(weights);
        // float32 holds the products of scales and quants; subtracting a minimum rounds once.
        EXPECT_EQ(doubles(wide), expected) << name_of(dtype);
      }
    }
  });
}

TEST(Weights, Float16KeepsSubnormalNumbers) {
  Tensor small = Tensor::empty({2, 32}, DType::float16);
  for (int64_t i = 0; i < 64; ++i) small.data<float16>()[i] = float16(static_cast<float>(i - 32) * 0x1p-24f);
  test::for_each_isa([&] { EXPECT_EQ(doubles(widened(small)), doubles(small)); });
}

struct LinearCase {
  int64_t m, n, k;
  DType weight, activation, result;
  bool bias;
};

/// A shape around the sizes at which another kernel, or another number of tasks or blocks, takes over.
LinearCase random_linear_case(uint64_t seed) {
  const core::Random random(seed, 3);
  uint64_t drawn = 0;
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random.uniform(drawn++) * static_cast<float>(most));
  };
  LinearCase made{};
  const int64_t least[] = {1, 29, 9}, most[] = {10, 8, 300};
  const int64_t kind = below(3);
  made.m = least[kind] + below(most[kind]);
  made.n = 1 + below(below(2) == 0 ? 9 : 600);
  made.weight = kWeightTypes[below(std::ssize(kWeightTypes))];
  const int64_t in_element = numbers_in(made.weight);
  made.k = in_element > 1 ? in_element * (1 + below(1280 / in_element)) : 1 + below(1200);
  made.activation = below(3) == 0 ? DType::bfloat16 : DType::float32;
  made.result = below(2) == 0 ? made.activation : DType::float32;
  made.bias = below(2) == 0;
  return made;
}

TEST(Weights, LinearLayersOfRandomShapesAgreeWithFloat64) {
  for (uint64_t seed = 0; seed < 90; ++seed) {
    const LinearCase c = random_linear_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: m {} n {} k {} weight {} x {} y {} bias {}", seed, c.m, c.n, c.k,
                             name_of(c.weight), name_of(c.activation), name_of(c.result), c.bias));
    const Tensor x = random_tensor({c.m, c.k}, seed + 1, 1, c.activation), bias = random_tensor({c.n}, seed + 2);
    const Tensor weight = random_weights(c.n, c.k, seed + 3, c.weight);
    auto expected = test::matmul_reference(doubles(x), false, numbers_of(weight), true, c.m, c.n, c.k);
    const auto shifts = doubles(bias);
    for (size_t i = 0; c.bias && i < expected.size(); ++i) expected[i] += shifts[i % static_cast<size_t>(c.n)];
    test::for_each_isa([&] {
      Tensor y({c.m, c.n}, c.result);
      nn::linear(x, weight, c.bias ? &bias : nullptr, y);
      // Many rows of bfloat16 are multiplied by weights of float16 and q8_0 that are rounded to it.
      const bool rounds = c.activation == DType::bfloat16 && c.m > 8;
      const double most = c.result == DType::float32 ? (rounds ? 0x1p-8 : kSumTolerance) : (rounds ? 0x1p-7 : 0x1p-8);
      EXPECT_TRUE(relative_diff(doubles(y), expected) <= most);
    });
  }
}

TEST(Weights, ProductsHaveTheSameBitsAtAnyThreadCount) {
  for (const DType dtype : kWeightTypes) {
    for (const int64_t rows : {1, 5, 70, 600}) {
      const Tensor x = random_tensor({rows, 768}, 1), weight = random_weights(700, 768, 2, dtype);
      test::expect_same_bits_at_any_thread_count([&] {
        Tensor y({rows, 700});
        nn::linear(x, weight, nullptr, y);
        return std::vector<Tensor>{y};
      });
    }
  }
}

/// Eight rows read blocks as they are, and more rows widen them first.
TEST(Weights, BlocksHaveTheSameBitsWidenedOrNot) {
  test::for_each_isa([] {
    for (const DType dtype : kWeightTypes) {
      const Tensor x = random_tensor({13, 768}, 1), weight = random_weights(21, 768, 2, dtype);
      Tensor all({13, 21});
      nn::linear(x, weight, nullptr, all);
      for (int64_t row = 0; row < 13 && numbers_in(dtype) > 1; row += 4) {
        Tensor one({1, 21});
        nn::linear(x.slice(0, row, row + 1), weight, nullptr, one);
        EXPECT_TRUE(test::same_bits(one, all.slice(0, row, row + 1))) << name_of(dtype);
      }
    }
  });
}

/// What a row gets does not depend on the rows beside it, as long as the same kernel reads them.
TEST(Weights, RowsOfSkinnyProductsAreIndependent) {
  for (const DType dtype : kWeightTypes) {
    const Tensor x = random_tensor({8, 512}, 1), weight = random_weights(33, 512, 2, dtype);
    Tensor all({8, 33});
    nn::linear(x, weight, nullptr, all);
    for (int64_t row = 0; row < 8; ++row) {
      Tensor one({1, 33});
      nn::linear(x.slice(0, row, row + 1), weight, nullptr, one);
      EXPECT_TRUE(test::same_bits(one, all.slice(0, row, row + 1)));
    }
  }
}

TEST(Weights, LargeProductsNeedLittleMemory) {
  const int64_t rows = 300, out = 2048, in = 2048;
  const Tensor x = random_tensor({rows, in}, 1), weight = random_weights(out, in, 2, DType::q8_0);
  Tensor y({rows, out});
  nn::linear(x, weight, nullptr, y);  // what the threads keep is there from now on
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  nn::linear(x, weight, nullptr, y);
  EXPECT_LE(peak_tensor_bytes() - before, 4'000'000);  // a float32 copy would have 17 MB
}

TEST(Weights, EmbeddingsReadTablesOfAnyType) {
  const Tensor ids = test::random_ids({3, 5}, 1, 11);
  for (const DType dtype : kWeightTypes) {
    const Tensor table = random_weights(11, 256, 2, dtype);
    const std::vector<double> entries = numbers_of(table);
    Tensor y({3, 5, 256});
    nn::embedding(ids, table, 3, y);
    std::vector<double> expected;
    for (const int32_t id : ids.to_ints()) {
      for (int64_t i = 0; i < 256; ++i) expected.push_back(3 * entries[static_cast<size_t>(id * 256 + i)]);
    }
    EXPECT_TRUE(relative_diff(doubles(y), expected) <= 1e-7) << name_of(dtype);
  }
  Tensor wrong({3, 5, 63});
  test::expect_error([&] { nn::embedding(ids, random_weights(11, 64, 2, DType::q8_0), 1, wrong); }, "15 rows of 64");
}

TEST(Weights, CrossEntropyReadsHeadsOfAnyType) {
  const int64_t rows = 20, vocab = 50, d = 256;
  const Tensor hidden = random_tensor({rows, d}, 1, .1f), targets = test::random_ids({rows}, 2, vocab);
  for (const DType dtype : kWeightTypes) {
    const Tensor head = random_weights(vocab, d, 3, dtype);
    std::vector<float> found(rows), expected(rows);
    linear_cross_entropy(hidden, head, targets, found);
    linear_cross_entropy(hidden, widened(head), targets, expected);
    const float largest = *std::max_element(expected.begin(), expected.end());
    EXPECT_TRUE(test::max_abs_diff(found, expected) <= 1e-5 * std::max(1.0f, largest)) << name_of(dtype);
  }
}

TEST(Weights, ErrorsNameTheArgument) {
  Tensor y({2, 3});
  const Tensor x({2, 64});
  test::expect_error([&] { nn::linear(x, Tensor({3, 1}, DType::q8_0), nullptr, y); }, "inner axis (64 and 32)");
  test::expect_error([&] { nn::linear(x, Tensor({3, 64}, DType::int32), nullptr, y); }, "weight is int32");
  test::expect_error([&] { nn::matmul(x, false, Tensor({64, 3}, DType::float16), false, y, false); }, "b is float16");
  test::expect_error([&] { widened(Tensor({3}, DType::int32)); }, "int32");
}

}  // namespace
}  // namespace alibi::nn
