#include "nn/scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "nn/norm.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::expect_error;
using test::random_tensor;

TEST(Scale, MultipliesEveryElement) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = random_tensor({300, 77}, 1, 1, dtype);
    Tensor y = Tensor::empty(x.shape(), dtype);
    scale(x, 0.5f, y);  // exact in both types
    const std::vector<float> from = x.to_floats(), to = y.to_floats();
    for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], from[i] * 0.5f) << i;
  }
}

TEST(Clamp, LimitsValuesAndTheirGradients) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Tensor x = Tensor::from(std::vector<float>{-7, -1.5f, -1, 0, 0.5f, 1.5f, 1.6f, nan}, {2, 4}).to(dtype);
    clamp(x, 1.5f);
    const std::vector<float> clamped = x.to_floats();
    EXPECT_EQ(std::vector<float>(clamped.begin(), clamped.end() - 1),
              (std::vector<float>{-1.5f, -1.5f, -1, 0, 0.5f, 1.5f, 1.5f}));
    EXPECT_TRUE(std::isnan(clamped.back()));
    Tensor dy = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}).to(dtype);
    clamp_backward(x, 1.5f, dy);
    EXPECT_EQ(dy.to_floats(), (std::vector<float>{0, 0, 3, 4, 5, 0, 0, 0}));
  }
  Tensor x({2});
  expect_error([&] { clamp(x, 0); }, "limit is 0");
}

TEST(Columns, AreCopiedAndSet) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = random_tensor({5, 9}, 1, 1, dtype);
    Tensor part = Tensor::empty({5, 4}, dtype);
    copy_columns(x, 3, part);
    EXPECT_EQ(part.to_floats(), x.slice(1, 3, 7).to_floats());
    Tensor whole = x.clone();
    scale(part, 2, part);
    set_columns(part, 3, whole);
    EXPECT_EQ(whole.slice(1, 3, 7).to_floats(), part.to_floats());
    EXPECT_EQ(whole.slice(1, 0, 3).to_floats(), x.slice(1, 0, 3).to_floats());
    EXPECT_EQ(whole.slice(1, 7, 9).to_floats(), x.slice(1, 7, 9).to_floats());
    expect_error([&] { copy_columns(x, 6, part); }, "columns from 6 on");
  }
}

TEST(Norm, InPlaceIsTheNormAlone) {
  const Tensor x = random_tensor({6, 33}, 1), weight = random_tensor({33}, 2), bias = random_tensor({33}, 3);
  for (const bool centered : {true, false}) {
    const NormParameters parameters{weight, centered ? &bias : nullptr, 1e-5f, centered};
    NormStatistics statistics{Tensor({6}), Tensor({6})};
    Tensor in_place = x.clone(), sum = x.clone(), y({6, 33});
    norm(in_place, parameters, in_place, statistics);
    residual_norm(sum, nullptr, {}, parameters, sum, nullptr, y, statistics);
    EXPECT_TRUE(test::same_bits(in_place, y));

    const Tensor dy = random_tensor({6, 33}, 4);
    Tensor dx = dy.clone(), dsum({6, 33}), dweight({33}), dweight_of_sum({33});
    norm_backward(dx, x, parameters, statistics, dx, &dweight, nullptr);
    residual_norm_backward(dy, x, parameters, statistics, {}, dsum, nullptr, &dweight_of_sum, nullptr);
    EXPECT_TRUE(test::same_bits(dx, dsum));
    EXPECT_TRUE(test::same_bits(dweight, dweight_of_sum));
  }
}

}  // namespace
}  // namespace alibi::nn
