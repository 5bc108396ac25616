#include <gtest/gtest.h>

#include "alibi/error.h"
#include "nn/elementwise.h"
#include "testing.h"

namespace alibi::nn {
namespace {

TEST(RandomFill, ElementsAreThoseOfTheStream) {
  const core::Random random(3, 5);
  Tensor normal({7, 5003}), uniform(normal.shape());
  nn::fill_normal(random, 0.5f, normal);
  nn::fill_uniform(random, 0.25f, uniform);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < normal.elements(); ++i) {
    const auto counter = static_cast<uint64_t>(i);
    const float drawn = normal.data<float>()[i], bounded = uniform.data<float>()[i];
    ASSERT_EQ(drawn, 0.5f * random.normal(counter));
    ASSERT_EQ(bounded, 0.25f * (2 * random.uniform(counter) - 1));
    ASSERT_TRUE(bounded >= -0.25f && bounded < 0.25f) << bounded;
    sum += static_cast<double>(drawn);
    squares += static_cast<double>(drawn) * static_cast<double>(drawn);
  }
  const auto count = static_cast<double>(normal.elements());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 0.25, 0.01);
}

TEST(RandomFill, ArgumentsAreChecked) {
  Tensor half({4}, DType::bfloat16), strided = Tensor({4, 4}).slice(1, 0, 2);
  EXPECT_THROW(nn::fill_normal(core::Random(1), 1, half), Error);
  EXPECT_THROW(nn::fill_uniform(core::Random(1), 1, strided), Error);
}

}  // namespace
}  // namespace alibi::nn
