#include "nn/linear.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "nn/framed.h"
#include "nn/matmul_plan.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::Framed;
using test::matmul_reference;
using test::random_tensor;
using test::relative_diff;

/// Relative to the largest expected value: float32 sums of k products.
constexpr double tolerance = 2e-6;

TEST(Matmul, OddShapesTransposesStridesAndAccumulation) {
  const int64_t sizes[][3] = {{1, 1, 1},    {1, 65, 31},  {2, 3, 5},     {17, 64, 33},   {63, 127, 65},
                              {129, 7, 64}, {3, 300, 17}, {33, 20, 900}, {600, 96, 101}, {16, 96, 64}};
  uint64_t seed = 0;
  for (const auto& [m, n, k] : sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool transpose_a = flags & 1, transpose_b = flags & 2, accumulate = flags & 4;
      SCOPED_TRACE(fmt::format("m {} n {} k {} flags {}", m, n, k, flags));
      const Framed a(transpose_a ? k : m, transpose_a ? m : k, ++seed);
      const Framed b(transpose_b ? n : k, transpose_b ? k : n, ++seed);
      Framed c(m, n, ++seed);
      auto expected = matmul_reference(doubles(a.inside), transpose_a, doubles(b.inside), transpose_b, m, n, k);
      const auto before = doubles(c.inside);
      for (size_t i = 0; accumulate && i < expected.size(); ++i) expected[i] += before[i];
      nn::matmul(a.inside, transpose_a, b.inside, transpose_b, c.inside, accumulate);
      EXPECT_TRUE(relative_diff(doubles(c.inside), expected) <= tolerance);
      EXPECT_TRUE(c.frame_is_intact());
    }
  }
}

TEST(Matmul, SplitInnerAxisAndManyTiles) {
  // Large enough to be cut in every direction.
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{96, 70, 6000}, {1500, 200, 130}}) {
    const Tensor a = random_tensor({k, m}, 1), b = random_tensor({k, n}, 2);
    Tensor c = random_tensor({m, n}, 3);
    auto expected = matmul_reference(doubles(a), true, doubles(b), false, m, n, k);
    const auto before = doubles(c);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    nn::matmul(a, true, b, false, c, true);
    EXPECT_TRUE(relative_diff(doubles(c), expected) <= tolerance);
    nn::matmul(a, true, b, false, c, false);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] -= before[i];
    EXPECT_TRUE(relative_diff(doubles(c), expected) <= tolerance);
  }
}

TEST(Matmul, Bfloat16WithResultsOfEitherType) {
  const int64_t m = 70, n = 48, k = 200;
  const Tensor a = random_tensor({m, k}, 1, 1, DType::bfloat16), b = random_tensor({n, k}, 2, 1, DType::bfloat16);
  const auto expected = matmul_reference(doubles(a), false, doubles(b), true, m, n, k);
  Tensor wide({m, n}), narrow({m, n}, DType::bfloat16);
  nn::matmul(a, false, b, true, wide, false);
  EXPECT_TRUE(relative_diff(doubles(wide), expected) <= tolerance);
  nn::matmul(a, false, b, true, narrow, false);
  EXPECT_TRUE(relative_diff(doubles(narrow), expected) <= 0x1p-8);
}

TEST(Matmul, AFewRowsOfAnyTypeWithBias) {
  // Up to eight are a kernel of its own, which takes four rows of each at a time; 200 rows are several tasks.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {3, 40}, {5, 33}, {203, 770}}) {
    for (int64_t m = 1; m <= 9; ++m) {
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        SCOPED_TRACE(fmt::format("m {} n {} k {} {}", m, n, k, name_of(dtype)));
        const Tensor x = random_tensor({m, k}, 1, 1, dtype), weight = random_tensor({n, k}, 2, 1, dtype);
        const Tensor bias = random_tensor({n}, 3, 1, dtype);
        auto expected = matmul_reference(doubles(x), false, doubles(weight), true, m, n, k);
        const auto more = doubles(bias);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += more[i % static_cast<size_t>(n)];
        Tensor y({m, n}), same({m, n}, dtype);
        nn::linear(x, weight, &bias, y);
        nn::linear(x, weight, &bias, same);
        EXPECT_TRUE(relative_diff(doubles(y), expected) <= tolerance);
        EXPECT_TRUE(relative_diff(doubles(same), expected) <= (dtype == DType::float32 ? tolerance : 0x1p-8));
      }
    }
  }
}

TEST(Matmul, AShapeSeenBeforeWithOtherStrides) {
  // Primitives are kept by shape; strides are part of it.
  const Tensor a = random_tensor({9, 12}, 1), b = random_tensor({12, 8}, 2);
  const auto expected = matmul_reference(doubles(a), false, doubles(b), false, 9, 8, 12);
  const Framed wide_a(9, 12, 1), wide_b(12, 8, 2);
  for (const Tensor& left : {a, wide_a.inside}) {
    for (const Tensor& right : {b, wide_b.inside}) {
      Tensor c({9, 8});
      Framed wide_c(9, 8, 3);
      nn::matmul(left, false, right, false, c, false);
      nn::matmul(left, false, right, false, wide_c.inside, false);
      EXPECT_TRUE(relative_diff(doubles(c), expected) <= tolerance);
      EXPECT_TRUE(relative_diff(doubles(wide_c.inside), expected) <= tolerance);
      EXPECT_TRUE(wide_c.frame_is_intact());
    }
  }
}

TEST(Matmul, EmptyAxes) {
  Tensor c = random_tensor({3, 4}, 1);
  const Tensor before = c.clone();
  nn::matmul(Tensor({3, 0}), false, Tensor({0, 4}), false, c, true);
  EXPECT_TRUE(test::same_bits(c, before));
  nn::matmul(Tensor({3, 0}), false, Tensor({0, 4}), false, c, false);
  EXPECT_EQ(test::max_abs(c.to_floats()), 0);
  const Tensor bias = random_tensor({4}, 2);
  nn::linear(Tensor({3, 0}), Tensor({4, 0}), &bias, c);  // what is left is the bias
  for (int64_t row = 0; row < 3; ++row) EXPECT_TRUE(test::same_bits(c.slice(0, row, row + 1).reshape({4}), bias));
  Tensor none({0, 4});
  nn::matmul(Tensor({0, 5}), false, Tensor({5, 4}), false, none, false);
}

TEST(Matmul, ErrorsNameTheArgument) {
  Tensor c({2, 3});
  const auto message = [&](const Tensor& a, const Tensor& b) {
    return test::message_of([&] { nn::matmul(a, false, b, false, c, false); });
  };
  EXPECT_NE(message(Tensor({2, 4}), Tensor({5, 3})).find("differ in the inner axis (4 and 5)"), std::string::npos);
  EXPECT_NE(message(Tensor({7, 4}), Tensor({4, 3})).find("c is [2, 3], expected [7, 3]"), std::string::npos);
  EXPECT_NE(message(Tensor({4}), Tensor({4, 3})).find("a is float32 [4]"), std::string::npos);
  EXPECT_NE(message(Tensor({2, 4}), Tensor({4, 3}, DType::bfloat16)).find("expected one type"), std::string::npos);
  const Tensor column_major = Tensor::view(c.raw(), {2, 2}, DType::float32, {1, 2});
  EXPECT_NE(message(Tensor({2, 2}), column_major).find("unit inner stride"), std::string::npos);
}

constexpr nn::ProductKernels all_kernels[] = {nn::ProductKernels::any_layout, nn::ProductKernels::inner_first};

TEST(MatmulPlan, CoversEverything) {
  for (const int64_t m : {1, 31, 512, 8192}) {
    for (const int64_t n : {1, 192, 3072}) {
      for (const int64_t k : {1, 768, 8192}) {
        for (const nn::ProductKernels kernels : all_kernels) {
          const nn::ProductShape shape{m, n, k, m % 2 == 0, n % 2 == 0, true};
          const nn::MatmulPlan plan = nn::plan_matmul(shape, kernels);
          EXPECT_GE(plan.tile_m * plan.tiles_m, m);
          EXPECT_GE(plan.tile_n * plan.tiles_n, n);
          EXPECT_GE(plan.tile_k * plan.pieces_k, k);
          EXPECT_LT(plan.tile_m * (plan.tiles_m - 1), m);
          EXPECT_LT(plan.tile_n * (plan.tiles_n - 1), n);
          EXPECT_LT(plan.tile_k * (plan.pieces_k - 1), k);
        }
      }
    }
  }
}

TEST(MatmulPlan, GivesWorkToManyThreads) {
  const auto tasks = [](int64_t m, int64_t n, int64_t k, bool gradient) {
    return nn::plan_matmul({m, n, k, !gradient, !gradient, gradient}, nn::ProductKernels::any_layout).tasks();
  };
  EXPECT_GE(tasks(8192, 128, 128, false), 8);
  EXPECT_GE(tasks(192, 192, 8192, true), 8);
  EXPECT_GE(tasks(16384, 768, 768, false), 64);
  EXPECT_GE(tasks(16384, 3072, 768, false), 96);
  EXPECT_GE(tasks(768, 768, 16384, true), 32);
  EXPECT_GE(tasks(3072, 768, 16384, true), 64);
  EXPECT_EQ(tasks(16, 64, 64, false), 1);
}

TEST(MatmulPlan, TurnsWhatIsReadManyTimes) {
  const auto plan = [](int64_t m, int64_t n, int64_t k, bool a_inner_first, bool b_inner_first) {
    return nn::plan_matmul({m, n, k, a_inner_first, b_inner_first, false}, nn::ProductKernels::inner_first);
  };
  EXPECT_FALSE(plan(4096, 2048, 512, true, true).transpose_b);
  EXPECT_TRUE(plan(4096, 512, 2048, true, false).transpose_b);
  EXPECT_FALSE(plan(1, 512, 2048, true, false).transpose_b) << "one row reads it once";
  const nn::ProductShape gradient{512, 512, 4096, false, false, true};
  EXPECT_TRUE(nn::plan_matmul(gradient, nn::ProductKernels::inner_first).transpose_a);
  EXPECT_FALSE(nn::plan_matmul(gradient, nn::ProductKernels::any_layout).transpose_a);
}

TEST(Linear, ForwardWithAndWithoutBiasOverLeadingAxes) {
  const Tensor x = random_tensor({2, 5, 19}, 1), weight = random_tensor({23, 19}, 2), bias = random_tensor({23}, 3);
  Tensor y({2, 5, 23});
  auto expected = matmul_reference(doubles(x), false, doubles(weight), true, 10, 23, 19);
  nn::linear(x, weight, nullptr, y);
  EXPECT_TRUE(relative_diff(doubles(y), expected) <= tolerance);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += doubles(bias)[i % 23];
  nn::linear(x, weight, &bias, y);
  EXPECT_TRUE(relative_diff(doubles(y), expected) <= tolerance);
}

TEST(Linear, BiasOfManyTilesIsTheRightPart) {
  const Tensor x = random_tensor({700, 96}, 1), weight = random_tensor({500, 96}, 2), bias = random_tensor({500}, 3);
  Tensor y({700, 500});
  auto expected = matmul_reference(doubles(x), false, doubles(weight), true, 700, 500, 96);
  const auto shifts = doubles(bias);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += shifts[i % 500];
  nn::linear(x, weight, &bias, y);
  EXPECT_TRUE(relative_diff(doubles(y), expected) <= tolerance);
}

TEST(Linear, GradientsOfRandomCotangents) {
  const int64_t rows = 7, in = 9, out = 5;
  const Tensor x = random_tensor({rows, in}, 1), weight = random_tensor({out, in}, 2), bias = random_tensor({out}, 3);
  const Tensor dy = random_tensor({rows, out}, 4);
  const auto loss = [&](const test::Doubles& xs, const test::Doubles& weights, const test::Doubles& biases) {
    auto y = matmul_reference(xs, false, weights, true, rows, out, in);
    for (size_t i = 0; i < y.size(); ++i) y[i] += biases[i % static_cast<size_t>(out)];
    return test::dot(y, doubles(dy));
  };
  const auto xs = doubles(x), weights = doubles(weight), biases = doubles(bias);
  Tensor dx({rows, in}), dweight({out, in}), dbias({out});
  dx.fill(99);
  dweight.fill(1);
  dbias.fill(2);
  nn::linear_backward(dy, x, weight, &dx, &dweight, &dbias);
  auto expected_x = test::numerical_gradient([&](const auto& v) { return loss(v, weights, biases); }, xs);
  auto expected_weight = test::numerical_gradient([&](const auto& v) { return loss(xs, v, biases); }, weights);
  auto expected_bias = test::numerical_gradient([&](const auto& v) { return loss(xs, weights, v); }, biases);
  for (double& value : expected_weight) value += 1;
  for (double& value : expected_bias) value += 2;
  EXPECT_TRUE(relative_diff(doubles(dx), expected_x) <= tolerance);
  EXPECT_TRUE(relative_diff(doubles(dweight), expected_weight) <= tolerance);
  EXPECT_TRUE(relative_diff(doubles(dbias), expected_bias) <= tolerance);
  nn::linear_backward(dy, x, weight, nullptr, nullptr, nullptr);  // all three are optional
}

TEST(Linear, SameBitsAtAnyThreadCount) {
  for (const int64_t rows : {1, 5, 300, 2100}) {
    SCOPED_TRACE(rows);
    const Tensor x = random_tensor({rows, 130}, 1), weight = random_tensor({200, 130}, 2);
    const Tensor bias = random_tensor({200}, 3), dy = random_tensor({rows, 200}, 4);
    test::expect_same_bits_at_any_thread_count([&] {
      Tensor y({rows, 200}), dx({rows, 130}), dweight({200, 130}), dbias({200});
      nn::linear(x, weight, &bias, y);
      nn::linear_backward(dy, x, weight, &dx, &dweight, &dbias);
      return std::vector<Tensor>{y, dx, dweight, dbias};
    });
  }
}

/// oneDNN would cut this product's inner axis by the number of OpenMP threads of the caller.
TEST(Matmul, SameBitsWhateverTheCallersOpenMpThreads) {
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  if (set == nullptr || get == nullptr) GTEST_SKIP() << "oneDNN without OpenMP";
  const test::RuntimeGuard guard;
  set_threads(1);
  const int before = get();
  const Tensor a = random_tensor({4001, 31}, 1), b = random_tensor({4001, 33}, 2);
  Tensor one({31, 33}), many({31, 33});
  set(1);
  nn::matmul(a, true, b, false, one, false);
  set(4);
  // Added to zeros: a primitive of its own, or the one made for a single thread would serve both.
  nn::matmul(a, true, b, false, many, true);
  EXPECT_EQ(get(), 4);  // the caller's setting is put back
  set(before);
  EXPECT_TRUE(test::same_bits(one, many));
}

}  // namespace
}  // namespace alibi::nn
