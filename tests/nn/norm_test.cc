#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "alibi/error.h"
#include "nn/norms.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::norm_reference;
using test::random_tensor;
using test::relative_diff;

constexpr float eps = 1e-5f;
constexpr double norm_tolerance = 2e-6;

/// Values far from zero, so that a variance computed as E[x^2] - E[x]^2 would show.
Tensor shifted(Shape shape, uint64_t seed, float shift) {
  Tensor x = random_tensor(std::move(shape), seed);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] += shift;
  return x;
}

TEST(LayerNorm, MatchesFloat64AtOddSizes) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 2, 3, 15, 16, 17, 64, 127, 768}) {
      SCOPED_TRACE(n);
      const Tensor x = shifted({5, n}, 1, 30), weight = random_tensor({n}, 2), bias = random_tensor({n}, 3);
      Tensor y({5, n}), mean({5}), rstd({5});
      nn::layer_norm(x, weight, &bias, eps, y, mean, rstd);
      // One rounding of x - mean at 30 is 2e-6 of a unit, hence the wider norm_tolerance.
      EXPECT_TRUE(relative_diff(doubles(y), norm_reference(doubles(x), doubles(weight), doubles(bias), eps, true)) <=
                  2e-5);
      nn::layer_norm(x, weight, nullptr, eps, y, mean, rstd);
      EXPECT_TRUE(relative_diff(doubles(y), norm_reference(doubles(x), doubles(weight), {}, eps, true)) <= 2e-5);
    }
  });
}

TEST(RmsNorm, MatchesFloat64AtOddSizes) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 2, 15, 17, 64, 769}) {
      SCOPED_TRACE(n);
      const Tensor x = random_tensor({3, 2, n}, 1), weight = random_tensor({n}, 2);
      Tensor y({3, 2, n}), rstd({6});
      nn::rms_norm(x, weight, eps, y, rstd);
      EXPECT_TRUE(relative_diff(doubles(y), norm_reference(doubles(x), doubles(weight), {}, eps, false)) <=
                  norm_tolerance);
    }
  });
}

/// Gradients of both norms against numerical ones; dweight and dbias start at 1 and 2 to see them added to.
void check_gradients(bool centered, int64_t rows, int64_t n) {
  const Tensor x = random_tensor({rows, n}, 1), weight = random_tensor({n}, 2), bias = random_tensor({n}, 3);
  const Tensor dy = random_tensor({rows, n}, 4);
  Tensor y({rows, n}), mean({rows}), rstd({rows}), dx({rows, n}), dweight({n}), dbias({n});
  dx.fill(99);
  dweight.fill(1);
  dbias.fill(2);
  if (centered) {
    nn::layer_norm(x, weight, &bias, eps, y, mean, rstd);
    nn::layer_norm_backward(dy, x, weight, mean, rstd, dx, &dweight, &dbias);
  } else {
    nn::rms_norm(x, weight, eps, y, rstd);
    nn::rms_norm_backward(dy, x, weight, rstd, dx, &dweight);
  }
  const auto xs = doubles(x), weights = doubles(weight), biases = doubles(bias), cotangent = doubles(dy);
  const auto loss = [&](const auto& a, const auto& w, const auto& b) {
    return test::dot(norm_reference(a, w, b, eps, centered), cotangent);
  };
  const auto expected_x = test::numerical_gradient([&](const auto& v) { return loss(v, weights, biases); }, xs);
  auto expected_weight = test::numerical_gradient([&](const auto& v) { return loss(xs, v, biases); }, weights);
  auto expected_bias = test::numerical_gradient([&](const auto& v) { return loss(xs, weights, v); }, biases);
  for (double& value : expected_weight) value += 1;
  for (double& value : expected_bias) value += 2;
  EXPECT_TRUE(relative_diff(doubles(dx), expected_x) <= 2 * norm_tolerance);
  EXPECT_TRUE(relative_diff(doubles(dweight), expected_weight) <= norm_tolerance);
  if (centered) {
    EXPECT_TRUE(relative_diff(doubles(dbias), expected_bias) <= norm_tolerance);
  }

  Tensor in_place = dy.clone();
  if (centered) {
    nn::layer_norm_backward(in_place, x, weight, mean, rstd, in_place, nullptr, nullptr);
  } else {
    nn::rms_norm_backward(in_place, x, weight, rstd, in_place, nullptr);
  }
  EXPECT_TRUE(test::same_bits(in_place, dx));
}

TEST(LayerNorm, GradientsOfRandomCotangents) {
  test::for_each_isa([] {
    check_gradients(true, 4, 37);
    check_gradients(true, 130, 3);  // several partial sums
  });
}

TEST(RmsNorm, GradientsOfRandomCotangents) {
  test::for_each_isa([] {
    check_gradients(false, 4, 37);
    check_gradients(false, 130, 3);
  });
}

/// The formula would give zeros, which nobody would notice.
TEST(Norm, ARowThatOverflowsIsNotANumber) {
  test::for_each_isa([] {
    for (const float huge : {1e20f, 3e38f, std::numeric_limits<float>::infinity()}) {
      Tensor x = random_tensor({2, 33}, 1), y({2, 33}), mean({2}), rstd({2});
      const Tensor weight = random_tensor({33}, 2);
      for (int64_t i = 0; i < 33; ++i) x.data<float>()[i] = i % 2 == 0 ? huge : -huge;
      for (const bool centered : {true, false}) {
        centered ? nn::layer_norm(x, weight, nullptr, eps, y, mean, rstd) : nn::rms_norm(x, weight, eps, y, rstd);
        for (int64_t i = 0; i < 33; ++i) {
          EXPECT_TRUE(std::isnan(y.data<float>()[i])) << huge;
          EXPECT_TRUE(std::isfinite(y.data<float>()[33 + i])) << huge;
        }
      }
    }
  });
}

TEST(Norm, SameBitsAtAnyThreadCount) {
  const int64_t rows = 1001, n = 67;
  const Tensor x = random_tensor({rows, n}, 1), weight = random_tensor({n}, 2), bias = random_tensor({n}, 3);
  const Tensor dy = random_tensor({rows, n}, 4);
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor y({rows, n}), z({rows, n}), mean({rows}), rstd({rows}), dx({rows, n}), dz({rows, n});
    Tensor dweight({n}), dbias({n}), dscale({n});
    nn::layer_norm(x, weight, &bias, eps, y, mean, rstd);
    nn::layer_norm_backward(dy, x, weight, mean, rstd, dx, &dweight, &dbias);
    nn::rms_norm(x, weight, eps, z, rstd);
    nn::rms_norm_backward(dy, x, weight, rstd, dz, &dscale);
    return std::vector<Tensor>{y, z, dx, dz, dweight, dbias, dscale};
  });
}

TEST(Norm, Bfloat16RoundsTheFloat32Result) {
  test::for_each_isa([] {
    const int64_t n = 45;
    const Tensor x = random_tensor({6, n}, 1, 1, DType::bfloat16), weight = random_tensor({n}, 2);
    Tensor y({6, n}, DType::bfloat16), mean({6}), rstd({6});
    nn::layer_norm(x, weight, nullptr, eps, y, mean, rstd);
    EXPECT_TRUE(relative_diff(doubles(y), norm_reference(doubles(x), doubles(weight), {}, eps, true)) <= 0x1p-8);
    const Tensor dy = random_tensor({6, n}, 3, 1, DType::bfloat16);
    Tensor dx({6, n}, DType::bfloat16), wide({6, n}), dweight({n});
    nn::layer_norm_backward(dy, x, weight, mean, rstd, dx, &dweight, nullptr);
    nn::layer_norm_backward(dy.to(DType::float32), x.to(DType::float32), weight, mean, rstd, wide, nullptr, nullptr);
    EXPECT_TRUE(test::same_bits(dx, wide.to(DType::bfloat16)));
  });
}

/// The rows of a group are normalized as if they were alone.
TEST(Norm, GroupsHaveWeightsOfTheirOwn) {
  const int64_t rows = 300, groups = 3, n = 21, share = rows / groups;
  const Tensor x = random_tensor({rows, n}, 1), dy = random_tensor({rows, n}, 2);
  const Tensor weight = random_tensor({groups * n}, 3), bias = random_tensor({groups * n}, 4);
  NormStatistics statistics{Tensor({rows}), Tensor({rows})};
  Tensor y({rows, n}), dx({rows, n}), dweight({groups * n}), dbias({groups * n});
  const NormParameters all{weight, &bias, eps, true, groups};
  norm(x, all, y, statistics);
  Tensor again({rows, n});
  normalize(x, all, statistics, again);
  EXPECT_TRUE(test::same_bits(again, y));
  norm_backward(dy, x, all, statistics, dx, &dweight, &dbias);
  for (int64_t group = 0; group < groups; ++group) {
    // The rows group, group + groups, ... of a tensor.
    const auto part = [&](const Tensor& of) {
      return of.reshape({share, groups, n}).slice(1, group, group + 1).clone().reshape({share, n});
    };
    const Tensor own_weight = weight.slice(0, group * n, (group + 1) * n);
    const Tensor own_bias = bias.slice(0, group * n, (group + 1) * n);
    NormStatistics own{Tensor({share}), Tensor({share})};
    Tensor own_y({share, n}), own_dx({share, n}), own_dweight({n}), own_dbias({n});
    const NormParameters one{own_weight, &own_bias, eps, true};
    norm(part(x), one, own_y, own);
    norm_backward(part(dy), part(x), one, own, own_dx, &own_dweight, &own_dbias);
    EXPECT_TRUE(test::same_bits(part(y), own_y));
    EXPECT_TRUE(test::same_bits(part(dx), own_dx));
    const auto same = [&](const Tensor& found, const Tensor& expected) {
      return relative_diff(doubles(found.slice(0, group * n, (group + 1) * n)), doubles(expected)) <= norm_tolerance;
    };
    EXPECT_TRUE(same(dweight, own_dweight));
    EXPECT_TRUE(same(dbias, own_dbias));
  }
}

TEST(Norm, ErrorsNameTheArgument) {
  const Tensor x({4, 6}), weight({6});
  Tensor y({4, 6}), mean({4}), rstd({3});
  EXPECT_EQ(test::message_of([&] { nn::layer_norm(x, weight, nullptr, eps, y, mean, rstd); }),
            "[norm] rstd is float32 [3], expected 4 contiguous float32 elements");
  EXPECT_THROW(nn::rms_norm(Tensor({4, 12}).slice(1, 0, 6), weight, eps, y, mean), Error);
}

}  // namespace
}  // namespace alibi::nn
